"""What every test of shipping has: the example server under load, the listener beside it, and the books at the end."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from inference_logging import Config
from tests.kit import servers
from tests.kit.books import assert_books_balance, variables
from tests.kit.servers import Server, serving
from tests.kit.sidecars import Sidecar
from tests.kit.support import parse, wait_until
from tests.ship.arrived import Record, compare, written_lines
from tests.ship.programs import Program, scraped
from tests.ship.shippers import Ship

_PATIENCE_S: Final = 120.0
_REFUSED_EACH: Final = 10
_STREAMED_EACH: Final = 3


class Load(servers.Load):
    """Clients that ask the example, until asked to stop."""

    def __init__(self, server: servers.Server, clients: int = 3) -> None:
        super().__init__(server, "", clients)

    def _send(self, client: int) -> None:
        number = 0
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as connection:
            while not self._ending.wait(servers.PAUSE_S):
                number += 1
                status = self._ask(connection, number)
                assert status in (200, 422), status
                self.answered.add(f"{client}-{number}")

    @staticmethod
    def _ask(client: httpx.Client, number: int) -> int:
        ask: dict[str, Any] = {"messages": [{"role": "user", "content": "wörd " * 5}], "max_tokens": 5}
        ask["stream"] = number % _STREAMED_EACH == 0
        if number % _REFUSED_EACH == 0:
            ask["max_tokens"] = -1
        headers = {"x-request-id": f"r-{number}", "traceparent": f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01"}
        return client.post("/v1/chat/completions", json=ask, headers=headers).status_code


EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "fastapi"
SMALL: Final = {"listener": "external", "flush_interval_s": 0.05, "rotate_bytes": 128 << 10}
"""Several segments in a test."""
_REMOVED: Final = "inference_logging_segments_removed_total"


class Mortal(Protocol):
    """What counts how often it was killed."""

    kills: int


@dataclass(frozen=True)
class Figures:
    """What a test has shown."""

    name: str
    records: int
    kills: int
    duplicates: int
    lost: int
    seconds: float

    def __str__(self) -> str:
        arrived = f"{self.lost} of them lost" if self.lost else "all of them arrived"
        return (
            f"{self.name}: {self.records} records written, {arrived}, {self.duplicates} copies besides; "
            f"{self.kills} kills, {self.seconds:.0f} s"
        )


class Stage:
    """A server and a listener with their directories."""

    def __init__(self, config: Config, figures: Callable[[Figures], None]) -> None:
        self.config = config
        self.kills = 0
        """Of the listener."""
        self._begun_s, self._figures = time.monotonic(), figures
        self._stack = contextlib.ExitStack()
        self.server: Server | None = None

    def __enter__(self) -> Stage:
        with contextlib.ExitStack() as stack:
            self.listener = stack.enter_context(self._listener())
            command = ("uvicorn", "app:app", "--app-dir", str(EXAMPLE), "--port", "{port}", "--no-access-log")
            self.server = stack.enter_context(serving(self.config, *command, **variables(self.config)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _listener(self) -> Sidecar:
        # Lists as the environment has them.
        given = [f"{name}={value}" for name, value in variables(self.config).items()]
        return Sidecar(self.config, "--metrics-port", "0", before=("env", *given))

    def load(self) -> Load:
        """Return clients that begin when they are entered."""
        assert self.server is not None
        return Load(self.server)

    def removed(self, reason: str) -> float:
        """Return how many segments the listener has removed for a reason, as its metrics report it."""

        def port() -> str | None:
            return next((found[1] for line in self.listener.lines if (found := re.search(r"port (\d+)", line))), None)

        return scraped(int(wait_until(port, "the port of the metrics")), _REMOVED, reason=reason)

    def kill_listener(self) -> None:
        """Kill the listener, and start the next one."""
        self.kills += 1
        self.listener.kill()
        self.listener = self._stack.enter_context(self._listener())

    def end(self) -> list[Record]:
        """End server and listener; return what is written, of which `verify` says that nothing is missing."""
        assert self.server is not None
        self.server.stop()
        assert self.listener.stop() == 0, self.listener.lines
        assert_books_balance(self.config)
        return [parse(line) for line in written_lines(self.config.directory)]

    def ship_under_kills(self, ship: Ship, destination: Program, rounds: int) -> list[Record]:
        """Ship under load while destination and shipper are killed in turn; return what is written."""
        with self.load() as load:
            for _ in range(rounds):
                ship.wait_until_shipped(200)
                ship.outlive(destination, load)
                ship.wait_until_shipped(200)
                ship.restart()
                destination.kill()
                destination.start()
        written = self.end()
        assert ship.stop() == 0, ship.lines
        return written

    def show(
        self, name: str, written: Iterable[Record], arrived: Iterable[Record], *mortals: Mortal, most_lost: int = 0
    ) -> int:
        """Check that each record has arrived, as it was written; return how many copies there are besides.

        ``most_lost``: so many may be missing, where a protocol has no acknowledgements.
        """
        found = compare(written, arrived)
        lost = len(found.missing)
        assert lost <= most_lost, f"{lost} of {found.records} are missing"
        kills, seconds = sum(one.kills for one in (self, *mortals)), time.monotonic() - self._begun_s
        self._figures(Figures(name, found.records, kills, found.duplicates, lost, seconds))
        return found.duplicates

    def marks(self, name: str) -> tuple[set[str], set[str]]:
        """Return the names of the segments, and of those that shipper ``name`` has marked as shipped."""
        files = {path.name for path in self.config.directory.iterdir() if not path.is_symlink()}
        segments = {file.removesuffix(".zst") for file in files if file.endswith((".jsonl", ".jsonl.zst"))}
        suffix = f".shipped-{name}"
        return segments, {file.removesuffix(suffix) for file in files if file.endswith(suffix)}


def parameters(**more: Any) -> dict[str, Any]:
    """Return the parameters of server and listener."""
    return {**SMALL, **more}
