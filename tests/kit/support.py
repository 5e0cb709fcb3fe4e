"""What the tests of the Python face share: reading segments, driving an ASGI application, waiting for a condition."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging._native import Sampler, Settings
from inference_logging.record.settings import settings
from tests.kit.signatures import App, Message, Receive, Send

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01".encode()

_PATIENCE_S = 180.0

FRAMING = ("segment.header", "segment.footer")
"""Lines of a segment that are no records."""


PROCESS_ENDED = "process.ended"
"""The listener's own last record about a process."""


def sampler_of(kind: str, ratio: float = 1.0, precision: int = 4) -> Sampler:
    """Return the native sampler of a configuration that names kind, ratio and precision alone."""
    values = {"sampler": kind, "sample_ratio": ratio, "sample_precision": precision}
    return Sampler(Settings(json.dumps(values).encode()))


def sampler(config: Config) -> Sampler:
    """Return the native sampler of a configuration."""
    return Sampler(settings(config))


def read_lines(directory: Path) -> list[dict[str, Any]]:
    """Return every line of every segment below ``directory``, the files in the order of their names."""
    return [parse(line) for content in _segments(directory) for line in content.splitlines()]


def read_records(directory: Path, event: str | None = None) -> list[dict[str, Any]]:
    """Return the records of all segments: those of one event, or all but headers, footers and the ends of processes.

    A line whose end is not there yet is being written.
    """
    apart = (*FRAMING, PROCESS_ENDED) if event is None else ()
    whole = [line for content in _segments(directory) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    lines = [line for line in map(parse, whole) if line["event_name"] not in apart]
    return [line for line in lines if event in (None, line["event_name"])]


def _segments(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.jsonl")) if not path.is_symlink()]


def parse(line: bytes) -> dict[str, Any]:
    """Parse one line strictly: JSON as RFC 8259 has it (no NaN), UTF-8, no key twice."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"not JSON: {constant}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), f"a key stands twice in {line!r}"
        return dict(pairs)

    parsed = json.loads(line.decode("utf-8"), parse_constant=refuse, object_pairs_hook=unique)
    assert isinstance(parsed, dict)
    return parsed


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = _PATIENCE_S) -> Any:
    """Look until ``condition`` gives something true and return that; fail with ``what`` if it never comes.

    A file that another process removes or renames between the listing and the look is no failure: look again.
    """
    end = time.monotonic() + patience_s
    while True:
        missing = ""
        try:
            if found := condition():
                return found
        except FileNotFoundError as error:
            missing = f" ({error})"
        assert time.monotonic() < end, f"waited in vain for: {what}{missing}"
        time.sleep(0.01)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on afterwards.

    The signal stops it only once its first thread has run: until then the others go on.
    """
    tasks = Path(f"/proc/{pid}/task")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: all(_state(task) == "T" for task in tasks.iterdir()), "each thread to stand still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def resident_bytes() -> int:
    """Return the memory of this process that belongs to no file: what it allocated."""
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def remove_directory(directory: Path) -> None:
    """Remove a directory in which other processes may be making and removing files."""

    def is_removed() -> bool:
        with contextlib.suppress(OSError):
            shutil.rmtree(directory)
            return True
        return False

    wait_until(is_removed, f"{directory} to be removed")


def http_scope(path: str = "/", method: str = "GET", headers: Iterable[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """Return a complete HTTP scope."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": ("192.0.2.7", 50000),
        "server": ("192.0.2.1", 8000),
    }


def body_messages(*parts: bytes) -> list[Message]:
    """Return the ``http.request`` messages of a body that comes in ``parts``."""
    last = len(parts) - 1
    return [{"type": "http.request", "body": part, "more_body": at < last} for at, part in enumerate(parts)]


def answer(*parts: bytes, status: int = 200, content_type: bytes = b"text/plain") -> list[Message]:
    """Return the messages of a whole answer; several parts make it a stream that ends with an empty message."""
    start: Message = {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]}
    if len(parts) == 1:
        return [start, {"type": "http.response.body", "body": parts[0]}]
    stream: list[Message] = [{"type": "http.response.body", "body": part, "more_body": True} for part in parts]
    return [start, *stream, {"type": "http.response.body", "body": b"", "more_body": False}]


def replying(*messages: Message) -> App:
    """Return an application that reads the whole request and sends ``messages``."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        for message in messages:
            await send(message)

    return app


def doing(work: Callable[[], object]) -> App:
    """Return an application that does ``work`` within its request, and gives a short answer."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        work()
        await replying(*answer(b"x"))(scope, receive, send)

    return app


def raising(error: BaseException | type[BaseException]) -> App:
    """Return an application that raises ``error`` at once."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        raise error

    return app


class Client:
    """The server's side of one request: hands out ``incoming``, then waits forever; keeps what is sent."""

    def __init__(self, incoming: Iterable[Message] = ()) -> None:
        self._incoming: Iterator[Message] = iter(list(incoming) or body_messages(b""))
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """Return the next message."""
        message = next(self._incoming, None)
        if message is None:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")
        return message

    async def send(self, message: Message) -> None:
        """Keep ``message``."""
        self.sent.append(message)


def serve_one(app: App, scope: MutableMapping[str, Any], client: Client) -> None:
    """Let ``app`` serve one request of ``client``, in a context of its own."""

    async def call() -> None:
        await app(scope, client.receive, client.send)

    asyncio.run(call())


class Recorded:
    """Applications behind the middleware, and the records that they leave; one logger for all of them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.logger = Logger(config)

    def wrap(self, app: App) -> InferenceLoggingMiddleware:
        """Return ``app`` behind the middleware."""
        return InferenceLoggingMiddleware(app, config=self.config)

    def serve(
        self, app: App, scope: MutableMapping[str, Any] | None = None, incoming: Iterable[Message] = ()
    ) -> list[Message]:
        """Let ``app`` serve one request; return the messages that reached the server."""
        client = Client(incoming)
        asyncio.run(self.wrap(app)(scope if scope is not None else http_scope(), client.receive, client.send))
        return client.sent

    def request_of(
        self,
        app: App,
        scope: MutableMapping[str, Any] | None = None,
        incoming: Iterable[Message] = (),
        *,
        raises: type[BaseException] | None = None,
    ) -> dict[str, Any]:
        """Let ``app`` serve the only request, and raise exactly what is expected; return the terminal record."""
        raised: type[BaseException] | None = None
        try:
            self.serve(app, scope, incoming)
        except BaseException as error:
            raised = type(error)
            if raised is not raises:
                raise
        assert raised is raises, f"{raises} was not raised"
        return self.request()

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return what is recorded so far, completely."""
        assert self.logger.flush(_PATIENCE_S), "the listener does not write"
        return read_records(self.config.directory, event)

    def request(self) -> dict[str, Any]:
        """Return the one terminal record."""
        records = self.records("request")
        assert len(records) == 1, f"not exactly one terminal record: {records}"
        return records[0]

    def close(self) -> None:
        """Drain and end."""
        self.logger.close()
