"""Real servers in processes of their own, on free loopback ports, and clients that count what was answered."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from inference_logging import Config
from tests.kit.support import read_lines, read_records, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

HERE = Path(__file__).parent
_PATIENCE_S = 120.0
PAUSE_S = 0.02
"""Between two requests of a client: what is tested shares the processors."""


class Server:
    """One server process, with its workers, until it is stopped."""

    def __init__(self, config: Config, command: list[str], **environment: str) -> None:
        self.config = config
        self.port = free_port()
        settings = {f"INFERENCE_LOGGING_{name.upper()}": str(getattr(config, name)) for name in config.model_fields_set}
        arguments = [part.replace("{port}", str(self.port)) for part in command]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *arguments],
            env={**os.environ, **settings, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # Read all the time, so that the server never waits for a full pipe.
        self.output: list[bytes] = []
        self._reader = threading.Thread(target=lambda: self.output.extend(self.process.stdout or ()))
        self._reader.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        """Wait until requests are answered; the health route is not recorded."""

        def is_ready() -> bool:
            assert self.process.poll() is None, f"the server ended: {b''.join(self.output).decode()}"
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/health/logging").status_code == 200
            return False

        wait_until(is_ready, "the server to be ready", _PATIENCE_S)

    def get(self, path: str, **options: Any) -> Any:
        """Return the JSON of an answer, over a connection of its own."""
        response = httpx.get(f"{self.url}{path}", timeout=_PATIENCE_S, **options)
        assert response.status_code == 200
        return response.json()

    def stop(self) -> str:
        """Send SIGTERM, wait for the end, and return what the server said."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(_PATIENCE_S)
        self._reader.join()
        return b"".join(self.output).decode()

    def end(self) -> None:
        """Make sure that nothing is left running, workers neither."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Clients:
    """Threads that send requests from the beginning of a block to its end."""

    def __init__(self, send: Callable[[int], None], clients: int) -> None:
        """Take what each does, called with its number, until ``self._ending`` is set."""
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=send, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


class Load(Clients):
    """Clients that send one request after the other.

    Every request has an id, and a connection of its own, so that each worker gets some.
    """

    def __init__(self, server: Server, path: str, clients: int = 8) -> None:
        self.answered: set[str] = set()
        self.failed: set[str] = set()
        self._url = f"{server.url}{path}"
        super().__init__(self._send, clients)

    def wait_for(self, answers: int) -> None:
        """Wait until at least this many more requests are answered."""
        wanted = len(self.answered) + answers
        wait_until(lambda: len(self.answered) >= wanted, f"{wanted} answers", _PATIENCE_S)

    def _send(self, client: int) -> None:
        number = 0
        with httpx.Client(timeout=_PATIENCE_S) as connection:
            while not self._ending.wait(PAUSE_S):
                number += 1
                name = f"{client}-{number}"
                try:
                    response = connection.get(self._url, headers={"x-request-id": name, "connection": "close"})
                except httpx.ConnectError:
                    if self._ending.wait(0.01):
                        return
                except httpx.TransportError:
                    # It may have been served, the answer is lost.
                    self.failed.add(name)
                else:
                    (self.answered if response.status_code == 200 else self.failed).add(name)


@contextlib.contextmanager
def serving(config: Config, *command: str, **environment: str) -> Iterator[Server]:
    """Start a server by a ``python -m`` command line in which ``{port}`` is its port, and wait until it is ready."""
    server = Server(config, list(command), **environment)
    try:
        server.wait_until_ready()
        yield server
    except BaseException:
        server.end()
        sys.stdout.write(b"".join(server.output).decode(errors="replace"))
        raise
    finally:
        server.end()


def uvicorn(config: Config, *options: str, app: str = "served_app:app") -> contextlib.AbstractContextManager[Server]:
    """Serve with uvicorn."""
    return serving(config, "uvicorn", app, "--app-dir", str(HERE), "--port", "{port}", "--no-access-log", *options)


def free_port() -> int:
    """Return a port that nobody has: one of many below those of the system, so that hardly another test gets it."""
    while True:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port := random.randrange(10_000, 32_000)))
            return port


def numbered(directory: Path) -> list[dict[str, Any]]:
    """Return the records that came through a queue; what the listener says itself has no number."""
    return [record for record in read_records(directory) if "seq" in record]


def assert_each_answer_is_recorded(directory: Path, load: Load) -> None:
    """Check that each answered request has one terminal record, and that no other is recorded unless it failed."""
    requests = [record for record in read_records(directory, "request") if "client_request_id" in record]
    found = Counter(record["client_request_id"] for record in requests)
    recorded = set(found)
    assert load.answered <= recorded <= load.answered | load.failed
    assert {name: count for name, count in found.items() if count != 1} == {}
    seen = [(record["boot_id"], record["seq"]) for record in numbered(directory)]
    assert len(set(seen)) == len(seen)


def assert_footers_balance(directory: Path) -> None:
    """Check the last counts of every process: all that was accepted is written or counted as dropped."""
    last: dict[str, dict[str, Any]] = {}
    for footer in (line for line in read_lines(directory) if line["event_name"] == "segment.footer"):
        last.update({books["boot_id"]: books for books in footer["processes"]})
    assert last
    assert all(books["accepted"] == books["written"] and not books["dropped"] for books in last.values())
    written = Counter(record["boot_id"] for record in numbered(directory))
    assert written == {boot: books["written"] for boot, books in last.items() if books["written"]}
