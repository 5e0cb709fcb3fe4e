"""A client that knows what happened: what it asked for, when each byte came, and when it left."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.kit.support import wait_until
from tests.truth.events import CHUNKS, Kind, Stream
from tests.truth.player import BEGUN, HEADER, STARTED, Script

_PATIENCE_S: Final = 120.0


@dataclass
class Seen:
    """What the client saw of one answer, by its own clock: seconds since it began to send the request."""

    name: str
    script: Script
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """When bytes came, and how many were there by then."""
    total_s: float = 0.0
    whole: bool = False
    """Whether the answer came to its end."""
    server_ended_by: str = ""
    """A signal, where the server ends before the client leaves."""

    @property
    def stream(self) -> Stream:
        """What was sent, for the table."""
        return self.script.stream

    @property
    def cut(self) -> str:
        """How it was cut, for the table."""
        return self.script.cut

    @property
    def ending(self) -> str:
        """How it ended, for the table."""
        until = {None: "", BEGUN: " before the headers", STARTED: " after the headers"}
        ending = self.server_ended_by or self.script.ending
        return ending + until.get(self.script.until, f" after {self.script.until} events")

    @property
    def bytes(self) -> int:
        """How many bytes came."""
        return self.arrivals[-1][1] if self.arrivals else 0

    def seconds_until(self, kinds: tuple[Kind, ...], later: int = 0) -> float | None:
        """Return when the first event of one of these kinds was there to its end, or some arrivals later."""
        end = 0
        for event, part in zip(self.stream.events, self.stream.parts(), strict=True):
            end += len(part)
            if event.kind in kinds:
                return next(itertools.islice((at for at, size in self.arrivals if size >= end), later, None), None)
        return None

    def events(self) -> int:
        """Return how many events with content were there to their end."""
        end, count = 0, 0
        for event, part in zip(self.stream.events, self.stream.parts(), strict=True):
            end += len(part)
            count += event.kind in CHUNKS and end <= self.bytes
        return count


def reached(port: int, name: str) -> int | None:
    """Ask the server how far a script is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/reached")
        found = json.loads(connection.getresponse().read()).get(name)
        return None if found is None else int(found)


class Asking:
    """One request of a client, in a thread of its own."""

    def __init__(self, port: int, name: str, script: Script, application_port: int, server_ended_by: str) -> None:
        """Ask at ``port``, and leave where the script waits for that; the application itself is at another port."""
        self.seen = Seen(name, script, server_ended_by=server_ended_by)
        self._port, self._application_port = port, application_port
        self._leaves = not server_ended_by and script.ending == "left"
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def join(self) -> Seen:
        """Wait for the end."""
        self._thread.join()
        return self.seen

    def wait_for(self, condition: Callable[[Seen], bool]) -> None:
        """Wait until something was seen."""
        wait_until(lambda: condition(self.seen), f"{self.seen.name} to see something", _PATIENCE_S)

    def _ask(self) -> None:
        script, body = self.seen.script, self.seen.stream.request()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_S)
        connection.connect()
        headers = {"content-type": "application/json", "x-request-id": self.seen.name}
        began = time.monotonic()
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", self.seen.stream.path, body, {**headers, HEADER.decode(): script.header()})
            if self._leaves and (script.until or 0) <= 0:
                wait_until(
                    lambda: reached(self._application_port, self.seen.name) == script.until, "the script to begin"
                )
                return
            response = connection.getresponse()
            enough = len(self.seen.stream.body()) if self._leaves else None
            with contextlib.closing(response):
                while part := response.read1(65_536):
                    self.seen.arrivals.append((time.monotonic() - began, self.seen.bytes + len(part)))
                    if enough is not None and self.seen.bytes >= enough:
                        return
            self.seen.total_s, self.seen.whole = time.monotonic() - began, script.ending == "whole"
