"""Memory is bounded: by the queue's size when nothing is written, and by a few kilobytes for each stream under way."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from tests.sinks import small_file_system
from tests.support import Client, Receive, Recorded, Send, answer, body_messages, http_scope, replying

pytestmark = pytest.mark.servers

KIB = 1 << 10
MIB = 1 << 20
STREAMS = 1000


def resident_bytes() -> int:
    """Return the memory of this process that belongs to no file: what it allocated."""
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def fill(recorded: Recorded) -> int:
    """Log until the queue has refused 1,000 records in a row of the highest level; return how many it took."""
    log, accepted, refused = get_logger("full"), 0, 0
    while refused < 1000:
        if log.critical("x" * 1000, n=accepted):
            accepted, refused = accepted + 1, 0
        else:
            refused += 1
    return accepted


def test_a_full_queue_has_the_size_that_was_configured_and_counts_what_it_refuses(
    recording: Callable[..., Recorded],
) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    accepted = fill(recorded)
    stats = recorded.logger.stats()
    assert (stats["accepted"], stats["in_queue"]) == (accepted, accepted)
    assert 0.95 * MIB <= stats["bytes_in_queue"] <= MIB
    assert stats["dropped"] == {"queue_full": {"FATAL": 1000}}
    (queue,) = recorded.config.resolved_queue_directory.glob("*.queue")
    # Header and schemas, the slots of requests in flight, the records.
    assert queue.stat().st_size == 64 * KIB + recorded.config.in_flight_slots * 2 * KIB + MIB


def test_info_is_refused_at_four_fifths_and_warnings_still_find_room(recording: Callable[..., Recorded]) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    log = get_logger("overflow")
    while log.info("x" * 1000):
        pass
    assert 0.78 * MIB <= recorded.logger.stats()["bytes_in_queue"] <= 0.8 * MIB
    assert not log.info("x" * 1000)
    assert log.warning("x" * 1000)
    fill(recorded)
    assert not log.critical("x" * 1000)
    assert set(recorded.logger.stats()["dropped"]["queue_full"]) == {"INFO", "FATAL"}


def test_what_a_full_queue_refused_is_reported_in_band_once_there_is_a_listener(
    recording: Callable[..., Recorded],
) -> None:
    blocked = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    accepted = fill(blocked)
    listening = recording()
    while listening.logger.backlog_records():
        assert listening.logger.flush()
    records = listening.records()
    reported = [record for record in records if record["event_name"] == "log.dropped"]
    assert sum(record["dropped"] for record in reported) == 1000
    assert reported[-1]["reasons"] == {"queue_full": {"FATAL": 1000}}
    assert len([record for record in records if record["event_name"] == "log"]) == accepted


def test_under_a_full_queue_neither_logging_nor_serving_makes_the_process_grow(
    recording: Callable[..., Recorded],
) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    served = recorded.wrap(replying(*answer(*[b"data: x\n\n"] * 20, content_type=b"text/event-stream")))
    headers = [(b"content-type", b"application/json")]

    async def serve(requests: int) -> None:
        for _ in range(requests):
            client = Client(body_messages(b"{}"))
            await served(http_scope("/v1", "POST", headers), client.receive, client.send)

    def work() -> None:
        asyncio.run(serve(500))
        fill(recorded)

    work()
    before = resident_bytes()
    for _ in range(8):
        work()
    assert recorded.logger.stats()["dropped"]["queue_full"]["INFO"] > 0
    # 4,000 requests; one kilobyte kept of each would be four times this.
    assert resident_bytes() - before < MIB


def test_serving_and_writing_for_long_does_not_make_the_process_grow(recording: Callable[..., Recorded]) -> None:
    recorded = recording(rotate_bytes=MIB)
    served = recorded.wrap(replying(*answer(*[b"data: x\n\n"] * 20, content_type=b"text/event-stream")))

    async def serve(requests: int) -> None:
        for _ in range(requests):
            client = Client()
            await served(http_scope(), client.receive, client.send)

    def work() -> None:
        asyncio.run(serve(1000))
        assert recorded.logger.flush()

    for _ in range(3):
        work()
    before = resident_bytes()
    for _ in range(8):
        work()
    assert resident_bytes() - before < 2 * MIB


def memory_of_streams(recorded: Recorded | None, chunks: int) -> tuple[int, int]:
    """Return what 1,000 streams under way hold, each after ``chunks`` chunks: bytes of Python, bytes of the process."""
    headers = [(b"content-type", b"application/json")]
    request = json.dumps({"messages": "m" * 10_000, "model": "llama"}).encode()
    chunk = b"data: " + b"t" * 200 + b"\n\n"

    async def discard(message: MutableMapping[str, Any]) -> None: ...

    async def run() -> tuple[int, int]:
        begun, ending = [], asyncio.Event()
        all_begun = asyncio.Event()

        async def app(scope: Any, receive: Receive, send: Send) -> None:
            await receive()
            await send(answer(b"", content_type=b"text/event-stream")[0])
            for _ in range(chunks):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            begun.append(True)
            if len(begun) == STREAMS:
                all_begun.set()
            await ending.wait()
            await send({"type": "http.response.body", "body": b""})

        served = recorded.wrap(app) if recorded is not None else app
        messages = body_messages(request)

        def one() -> Any:
            return served(http_scope("/v1/chat/completions", "POST", headers), Client(messages).receive, discard)

        gc.collect()
        tracemalloc.start()
        process, (python, _) = resident_bytes(), tracemalloc.get_traced_memory()
        tasks = [asyncio.ensure_future(one()) for _ in range(STREAMS)]
        await all_begun.wait()
        grown = resident_bytes() - process, tracemalloc.get_traced_memory()[0] - python
        tracemalloc.stop()
        ending.set()
        await asyncio.gather(*tasks)
        return grown[1], grown[0]

    return asyncio.run(run())


@pytest.mark.parametrize("chunks", [100, 500])
def test_a_thousand_streams_hold_a_few_kilobytes_each_however_long_they_are(
    recording: Callable[..., Recorded], chunks: int
) -> None:
    recorded = recording(queue_bytes=16 * MIB)
    memory_of_streams(recorded, 1)
    without = memory_of_streams(None, chunks)
    with_middleware = memory_of_streams(recorded, chunks)
    python, process = (got - had for got, had in zip(with_middleware, without, strict=True))
    assert python < STREAMS * 4096
    # Captures (1 KiB head and 2 KiB tail of the request, 2 KiB tail of the answer), timeline (256 gaps of 4 bytes),
    # and the allocator's own share; the answer alone has up to 104 kB.
    assert process < STREAMS * 16 * 1024
    assert len(recorded.records("request")) == 2 * STREAMS


def test_a_logger_that_was_closed_leaves_no_memory_and_no_descriptor_behind(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "small", "64m") as small:
        config = configure(queue_directory=small / "queues", queue_bytes=16 * MIB)
        Logger(config).close()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(8):  # Four of them would fill the file system.
            with Logger(config) as logger:
                assert logger.event("step", [])()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
