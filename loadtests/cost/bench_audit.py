"""What an awaited audit record costs, beside a file that is synced for each record, on the temporary directory's disk.

256 tasks of one event loop each make an audit record, wait until it is committed, and go on. *Ours*: ``await
logger.audit(...)`` with its hash chain, where one fsync serves all who wait. *fsync per record*: the same tasks each
write the same fields as a line of JSON and call ``fdatasync``, in the event loop, as an audit log is usually written,
without a chain. *In threads*: the same in a pool of 32 threads, so that the event loop goes on.

Every contender runs once in each round. The ratio is taken within a round. TMPDIR chooses the disk: on tmpfs an fsync
costs nothing, and the figures mean nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from inference_logging.prove.bench.machine import file_system
from loadtests.cost.bench_loggers import ours
from loadtests.cost.bench_report import Report, at_least, ratios
from loadtests.harness import scratch_directory

TASKS = 256
POOL = 32
FIELDS = {"user": "u-1234", "model": "tiny", "policy": "default", "allowed": True, "input_tokens": 812}

Commit = Callable[[int], Awaitable[object]]


def audit(quick: bool) -> Report:
    """Measure awaited commits per second, and how long one takes."""
    rounds, seconds = (2, 0.05) if quick else (7, 2.0)
    files = ""
    rates: dict[str, list[float]] = {"ours": [], "fsync": [], "threads": []}
    shared: list[float] = []
    for _ in range(rounds):
        with scratch_directory() as directory:
            files = file_system(directory)
            rate, share = _ours(directory, seconds)
            shared.append(share)
            rates["ours"].append(rate)
            rates["fsync"].append(_synced(directory, seconds))
            with ThreadPoolExecutor(POOL) as pool:
                rates["threads"].append(_synced(directory, seconds, pool))
    report = Report(f"audit lane: {TASKS} tasks, each awaits its record's commit on {files}")
    report.add("awaited commits", "1/s", rates["ours"], at_least(20_000))
    report.add("÷ fsync per record", "×", ratios(rates["ours"], rates["fsync"]))
    report.add("÷ fsync per record in threads", "×", ratios(rates["ours"], rates["threads"]))
    report.add("fsync per record", "1/s", rates["fsync"])
    report.add(f"fsync per record in {POOL} threads", "1/s", rates["threads"])
    report.add("records per fsync", "", shared)
    return report


async def _many(commit: Commit, seconds: float) -> tuple[float, int]:
    """Let all tasks go round for a while; return commits per second, and how many there were."""
    made = 0
    start = time.perf_counter()

    async def task() -> None:
        nonlocal made
        while True:  # once at least, however busy the machine is
            await commit(made)
            made += 1
            if time.perf_counter() >= start + seconds:
                return

    await asyncio.gather(*(task() for _ in range(TASKS)))
    return made / (time.perf_counter() - start), made


def _ours(directory: Path, seconds: float) -> tuple[float, float]:
    with ours(directory, audit="on", audit_directory=directory / "audit") as opened:
        logger = opened.logger

        def batches() -> int:
            return int(logger.stats()["audit"]["listener"]["batches_written"])

        async def main() -> tuple[float, float]:
            await logger.audit("decision", number=0, **FIELDS)
            before = batches()
            rate, made = await _many(lambda number: logger.audit("decision", number=number, **FIELDS), seconds)
            return rate, made / max(batches() - before, 1)

        return asyncio.run(main())


def _line(number: int) -> bytes:
    head = {"timestamp": time.time(), "event_name": "decision", "pid": os.getpid(), "number": number}
    return orjson.dumps({**head, **FIELDS}) + b"\n"


def _write_and_sync(file: int, number: int) -> None:
    os.write(file, _line(number))
    os.fdatasync(file)


def _synced(directory: Path, seconds: float, pool: ThreadPoolExecutor | None = None) -> float:
    """Return commits per second of a file that is synced for each record: in the event loop, or in a pool's threads."""
    file = os.open(directory / f"synced-{pool is None}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def commit(number: int) -> None:
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(pool, _write_and_sync, file, number)
            return
        _write_and_sync(file, number)
        # As a request that goes on: other tasks have their turn.
        await asyncio.sleep(0)

    try:
        return asyncio.run(_many(commit, seconds))[0]
    finally:
        os.close(file)
