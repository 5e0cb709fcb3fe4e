"""Memory stays where it is without us, however many chunks and however large the parts: measured in process."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import Recorded, http_scope

pytestmark = pytest.mark.servers

MIB = 1 << 20
MILLION = 1_000_000
JSON = [(b"content-type", b"application/json")]


class Done:
    """An awaitable that is there already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = Done()


def send(message: MutableMapping[str, Any]) -> Awaitable[None]:
    """Keep nothing."""
    return DONE


async def receive() -> dict[str, Any]:
    """Return one more part of a body without end."""
    return {"type": "http.request", "body": b"[1, 2, 3]", "more_body": True}


async def million_chunks(scope: Any, receive: Any, send: Any) -> None:
    """Send a million tiny chunks of a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(MILLION):
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
    scope["measure"]()
    await send({"type": "http.response.body"})


async def endless_body(scope: Any, receive: Any, send: Any) -> None:
    """Receive a body of many parts and never answer."""
    for _ in range(MILLION // 4):
        await receive()
    scope["measure"]()


async def large_parts(scope: Any, receive: Any, send: Any) -> None:
    """Send a JSON answer in parts of a MiB, each one made when it is needed."""
    await send({"type": "http.response.start", "status": 200, "headers": JSON})
    for _ in range(500):
        await send({"type": "http.response.body", "body": bytes(MIB), "more_body": True})
    scope["measure"]()


def run(served: Callable[[Any, Any, Any], Any]) -> int:
    """Serve one JSON request to its end, in which nothing ever waits; return what was resident amid it."""
    measured: list[int] = []
    scope = {
        **http_scope("/v1/chat/completions", "POST", JSON),
        "measure": lambda: measured.append(resident_bytes()),
    }
    with pytest.raises(StopIteration):
        served(scope, receive, send).send(None)
    return measured[0] if measured else 0


def resident_bytes() -> int:
    """Return the memory of this process that belongs to no file."""
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


@pytest.mark.parametrize("app", [million_chunks, endless_body, large_parts], ids=lambda app: app.__name__)
@pytest.mark.parametrize("chunks", ["timeline", "events"])
def test_what_is_held_does_not_grow_with_the_stream(
    recording: Callable[..., Recorded], app: Callable[[Any, Any, Any], Any], chunks: str
) -> None:
    recorded = recording(chunks=chunks)
    served = recorded.wrap(app)
    run(served)  # Fills what is allocated once: the batch, the listener's buffers.
    assert recorded.logger.flush(60)
    before = resident_bytes()
    # Four bytes per chunk would be seen here.
    assert run(served) - before < 2 * MIB


def test_no_python_object_stays_for_a_chunk(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(20_000):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    def peak(served: Callable[[Any, Any, Any], Any]) -> int:
        run(served)
        tracemalloc.start()
        try:
            run(served)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(recorded.wrap(app)) - peak(app) < 16 * 1024
