"""The audit lane: what a call promises, how it ends, and what loops and threads see of it."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inference_logging import AuditError, Logger, get_logger
from inference_logging._native import LineChain
from inference_logging.errors import OpenError
from inference_logging.testing import capture_records
from tests.kit.support import wait_until
from tests.record.audited import Open, lines, records

KEY = "0f" * 32


def test_an_awaited_record_is_in_the_segment_when_audit_returns(open_: Open, tmp_path: Path) -> None:
    logger = open_()

    async def main() -> None:
        for number in range(3):
            assert await logger.audit("decision", user="u", number=number, allowed=True)
            assert [line["number"] for line in records(tmp_path)] == list(range(number + 1))

    asyncio.run(main())
    first = records(tmp_path)[0]
    assert list(first)[5:] == ["seq", "user", "number", "allowed", "chain"]
    assert not list((tmp_path / "logs").glob("*.jsonl")), "the fast lane has its own segments"


def test_tasks_that_wait_at_the_same_time_share_commits(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)

    async def main() -> None:
        for _ in range(4):
            committed = await asyncio.gather(*(logger.audit("decision", number=number) for number in range(200)))
            assert committed == [True] * 200

    asyncio.run(main())
    assert len(records(tmp_path)) == 800
    assert logger.stats()["audit"]["listener"]["batches_written"] < 80


def test_every_nth_record_and_the_interval_commit_what_nobody_awaits(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_interval_s=60, audit_commit_records=50)
    step = logger.event("step", ["number"], lane="audit")
    for number in range(50):
        assert step(number)
    wait_until(lambda: len(records(tmp_path)) == 50, "the 50th record")
    other = open_(
        audit_commit_interval_s=0.1, queue_directory=tmp_path / "other", audit_directory=tmp_path / "other-audit"
    )
    assert other.event("step", ["number"], lane="audit")(1), "the interval is 0.1 s there"
    wait_until(lambda: any('"number":1,' in line for line in other_lines(tmp_path / "other-audit")), "the interval")


def other_lines(directory: Path) -> list[str]:
    """Return the lines of all segments of a directory."""
    return [line for path in directory.glob("*.jsonl") for line in path.read_text().splitlines()]


def test_committed_waits_for_all_that_was_made_before(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_interval_s=60, audit_commit_records=1_000_000)
    step = logger.event("step", ["number"], severity="WARN", lane="audit", with_request=True)

    async def main() -> None:
        assert await logger.committed(), "nothing was made"
        for number in range(10):
            assert step(number)
        assert await logger.committed()
        assert [line["number"] for line in records(tmp_path)] == list(range(10))

    asyncio.run(main())
    assert step(10)
    assert logger.flush()
    assert [line["severity_text"] for line in records(tmp_path)] == ["WARN"] * 11


def test_the_same_event_may_have_other_fields(open_: Open, tmp_path: Path) -> None:
    logger = open_()

    async def main() -> None:
        await logger.audit("decision", a=1)
        await logger.audit("decision", b="x", a=None)
        await logger.audit("decision")
        with pytest.raises(ValueError, match="request"):
            await logger.audit("request", a=1)
        with pytest.raises(ValueError, match="boot_id"):
            await logger.audit("decision", boot_id=1)
        with pytest.raises(ValueError, match="hash chain"):
            await logger.audit("decision", chain="mine")

    asyncio.run(main())
    assert [(line.get("a"), line.get("b")) for line in records(tmp_path)] == [(1, None), (None, "x"), (None, None)]


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
@pytest.mark.parametrize("key", [None, KEY])
def test_the_lines_are_one_chain_over_listeners_and_segments(
    open_: Open, tmp_path: Path, algorithm: str, key: str | None
) -> None:
    parameters: dict[str, Any] = {"audit_chain": algorithm}
    if key is not None:
        (tmp_path / "key").write_text(key + "\n")
        parameters["audit_chain_key_file"] = tmp_path / "key"

    async def main(logger: Logger) -> None:
        for number in range(5):
            await logger.audit("decision", number=number)

    for _ in range(3):
        logger = open_(**parameters)
        asyncio.run(main(logger))
        logger.close()
    chain = LineChain(algorithm, bytes.fromhex(key) if key is not None else None, None)
    found = lines(tmp_path)
    assert len(found) == 3 * 8, "header, records, the end of the process, footer"
    assert all(chain.check(line.encode()) for line in found)
    assert not LineChain(algorithm, b"\1" * 32, None).check(found[0].encode())


def test_without_a_chain_lines_are_as_they_are(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_chain="off")
    asyncio.run(_audit_one(logger))
    assert not any('"chain' in line for line in lines(tmp_path))


async def _audit_one(logger: Logger) -> bool:
    return await logger.audit("decision", number=1)


def test_a_record_of_the_application_logger_goes_to_the_logger_opened_last(open_: Open, tmp_path: Path) -> None:
    open_()
    assert asyncio.run(get_logger("app").audit("decision", number=7))
    assert records(tmp_path)[0]["number"] == 7


def test_without_an_audit_lane_audit_says_so(open_: Open) -> None:
    logger = open_(audit="off")
    with pytest.raises(AuditError, match="audit is off"):
        asyncio.run(_audit_one(logger))
    with pytest.raises(AuditError, match="audit is off"):
        logger.event("step", [], lane="audit")
    with pytest.raises(ValueError, match="lane='slow'"):
        logger.event("step", [], lane="slow")  # type: ignore[arg-type]


def test_a_key_that_cannot_be_used_stops_the_start(open_: Open, tmp_path: Path) -> None:
    for content in (None, "", "0f" * 31, "0F" * 32):
        if content is not None:
            (tmp_path / "key").write_text(content)
        with pytest.raises(OpenError, match="audit_chain_key_file"):
            open_(audit_chain_key_file=tmp_path / "key")
    assert not list((tmp_path / "queues").glob("*.queue")), "nothing is left of the fast lane's queue"


# Nobody drains the queue: the listener is of another process, which is not there.
FULL: dict[str, Any] = {
    "listener": "external",
    "audit_queue_bytes": "64KiB",
    "audit_block_s": 0.2,
    "drain_deadline_s": 0.0,
}


def _fill(logger: Logger) -> None:
    step = logger.event("fill", ["text"], lane="audit")
    for _ in range(100):
        if not step("x" * 4000):
            return
    raise AssertionError("the queue never fills")


def test_a_full_queue_drops_and_counts_where_it_should(open_: Open) -> None:
    logger = open_(**FULL, audit_overflow="count")
    _fill(logger)
    assert not asyncio.run(logger.audit("decision", text="x" * 4000))
    assert logger.stats()["audit"]["dropped"] == {"queue_full": {"INFO": 2}}


@pytest.mark.parametrize("overflow", ["fail", "block"])
def test_a_full_queue_fails_the_record_where_it_should(open_: Open, overflow: str) -> None:
    logger = open_(**FULL, audit_overflow=overflow)
    with pytest.raises(AuditError, match="queue_full") as caught:
        _fill(logger)
    assert caught.value.reason == "queue_full"
    with pytest.raises(AuditError, match="queue_full"):
        asyncio.run(logger.audit("decision", text="x" * 4000))
    assert logger.stats()["audit"]["dropped"] == {"queue_full": {"INFO": 2}}, "each once, however often it was tried"


def test_a_record_that_waits_for_room_gets_it_once_somebody_listens(open_: Open, tmp_path: Path) -> None:
    logger = open_(**{**FULL, "audit_block_s": 60.0}, audit_overflow="block")
    step = logger.event("step", ["number", "text"], lane="audit")
    for number in range(15):
        step(number, "x" * 4000)

    async def main() -> None:
        waiting = [asyncio.create_task(logger.audit("late", text="x" * 4000)) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, open_)
        assert await asyncio.gather(*waiting) == [True] * 20

    asyncio.run(main())
    assert len(records(tmp_path, "step")) == 15
    assert len(records(tmp_path, "late")) == 20


def test_a_commit_that_was_asked_for_before_anybody_listened_is_made_by_the_first_who_does(
    open_: Open, tmp_path: Path
) -> None:
    logger = open_(**{**FULL, "audit_block_s": 60.0})

    async def main() -> None:
        waiting = asyncio.create_task(_audit_one(logger))
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, partial(open_, audit_commit_interval_s=60))
        assert await waiting

    asyncio.run(main())
    assert len(records(tmp_path)) == 1


def test_a_record_that_is_not_committed_in_time_is_reported_and_stays(open_: Open, tmp_path: Path) -> None:
    logger = open_(**FULL)
    with pytest.raises(AuditError, match="not committed") as caught:
        asyncio.run(_audit_one(logger))
    assert caught.value.reason == "not_committed"
    counting = open_(**FULL, audit_overflow="count")
    assert not asyncio.run(_audit_one(counting))
    open_().flush()
    wait_until(lambda: len(records(tmp_path, "decision")) == 2, "both records")


def test_a_value_too_large_is_refused_and_counted(open_: Open) -> None:
    logger = open_(audit_overflow="count")
    assert not asyncio.run(logger.audit("decision", text="x" * 70_000))
    assert logger.stats()["audit"]["dropped"] == {"oversize": {"INFO": 1}}


def test_a_task_that_is_cancelled_disturbs_no_other(open_: Open, tmp_path: Path) -> None:
    logger = open_()

    async def main() -> None:
        tasks = [asyncio.create_task(logger.audit("decision", number=number)) for number in range(100)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert ended[1::2] == [True] * 50

    asyncio.run(main())
    logger.flush()
    assert len(records(tmp_path)) == 100


def test_each_event_loop_is_served(open_: Open, tmp_path: Path) -> None:
    logger = open_()
    for _ in range(3):
        assert asyncio.run(_audit_one(logger))

    async def in_threads() -> list[bool]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(None, lambda: asyncio.run(_audit_one(logger))) for _ in range(4))
        )

    assert asyncio.run(in_threads()) == [True] * 4
    assert len(records(tmp_path)) == 7


def test_trio_is_served(open_: Open, tmp_path: Path) -> None:
    trio = pytest.importorskip("trio")
    logger = open_()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(lambda number=number: logger.audit("decision", number=number))

    trio.run(main)
    assert sorted(line["number"] for line in records(tmp_path)) == list(range(5))


def test_uvloop_is_served(open_: Open, tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    logger = open_()
    loop = uvloop.new_event_loop()

    async def main() -> list[bool]:
        return await asyncio.gather(*(logger.audit("decision", number=number) for number in range(50)))

    assert loop.run_until_complete(main()) == [True] * 50
    loop.close()
    assert len(records(tmp_path)) == 50


def test_captured_records_have_those_of_the_audit_lane() -> None:
    log = get_logger("app")
    with capture_records(audit="on") as captured:
        log.info("hello")
        assert asyncio.run(log.audit("decision", number=1))
    assert [record["number"] for record in captured.named("decision")] == [1]
    assert len(captured.logs) == 1


def test_a_forked_child_has_an_audit_queue_of_its_own(open_: Open, tmp_path: Path) -> None:
    logger = open_()

    async def two() -> bool:
        return await logger.audit("decision", pid=0, number=1) and await logger.audit("decision", pid=0, number=2)

    with pytest.raises(ValueError, match="pid"):
        asyncio.run(two())
    assert asyncio.run(_audit_one(logger))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if asyncio.run(_audit_one(logger)) and logger.close() else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(_audit_one(logger))
    found = records(tmp_path)
    assert sorted(line["pid"] for line in found) == sorted([os.getpid(), os.getpid(), child])
