"""Who waits for commits: tasks that are cancelled, many event loops, other event loops, forked children."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from inference_logging import Logger, get_logger
from inference_logging.testing import capture_records
from tests.audited import Open, records


async def _audit_one(logger: Logger) -> bool:
    return await logger.audit("decision", number=1)


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
