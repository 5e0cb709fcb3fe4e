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
from statistics import median

import orjson

from loadtests.cost.bench_loggers import ours
from loadtests.cost.bench_report import Report, at_least, pairwise, percentile
from loadtests.harness import scratch_directory

TASKS = 256
POOL = 32
FIELDS = {"user": "u-1234", "model": "tiny", "policy": "default", "allowed": True, "input_tokens": 812}

Commit = Callable[[int], Awaitable[object]]


def audit(quick: bool) -> Report:
    """Measure awaited commits per second, and how long one takes."""
    rounds, seconds = (2, 0.05) if quick else (7, 2.0)
    rates: dict[str, list[float]] = {"ours": [], "fsync": [], "threads": []}
    waits: list[list[float]] = []
    alone: list[float] = []
    syncs: list[float] = []
    shared: list[float] = []
    for _ in range(rounds):
        with scratch_directory() as directory:
            rate, latencies, one, share = _ours(directory, seconds)
            rates["ours"].append(rate)
            waits.append(latencies)
            alone.append(one)
            shared.append(share)
            syncs.append(_sync_s(directory))
            rates["fsync"].append(_per_record(directory, seconds))
            rates["threads"].append(_in_threads(directory, seconds))
    report = Report(f"audit lane: {TASKS} tasks, each awaits its record's commit on {_file_system()}")
    report.add("awaited commits", "1/s", rates["ours"], at_least(20_000))
    report.add("÷ fsync per record", "×", pairwise(lambda a, b: a / b, rates["ours"], rates["fsync"]))
    report.add("÷ fsync per record in threads", "×", pairwise(lambda a, b: a / b, rates["ours"], rates["threads"]))
    report.add("fsync per record", "1/s", rates["fsync"])
    report.add(f"fsync per record in {POOL} threads", "1/s", rates["threads"])
    report.add("records per fsync", "", shared)
    report.add("wait of one of the tasks, p50", "ms", [percentile(seen, 0.5) * 1e3 for seen in waits])
    report.add("wait of one of the tasks, p99", "ms", [percentile(seen, 0.99) * 1e3 for seen in waits])
    report.add("wait of a single task, p50", "ms", [one * 1e3 for one in alone])
    report.add("one write and fdatasync of this disk, p50", "ms", [one * 1e3 for one in syncs])
    return report


async def _many(commit: Commit, seconds: float) -> tuple[float, list[float]]:
    """Let all tasks go round for a while; return commits per second, and how long each took, sorted."""
    waits: list[float] = []
    start = time.perf_counter()
    end = start + seconds

    async def task() -> None:
        while (begun := time.perf_counter()) < end:
            await commit(len(waits))
            waits.append(time.perf_counter() - begun)

    await asyncio.gather(*(task() for _ in range(TASKS)))
    return len(waits) / (time.perf_counter() - start), sorted(waits)


def _ours(directory: Path, seconds: float) -> tuple[float, list[float], float, float]:
    with ours(directory, audit="on", audit_directory=directory / "audit") as opened:
        logger = opened.logger

        async def main() -> tuple[float, list[float], float, float]:
            await logger.audit("decision", number=0, **FIELDS)
            before = logger.stats()["audit"]["listener"]["batches_written"]
            rate, waits = await _many(lambda number: logger.audit("decision", number=number, **FIELDS), seconds)
            batches = logger.stats()["audit"]["listener"]["batches_written"] - before
            alone = []
            end = time.perf_counter() + seconds / 4
            while (begun := time.perf_counter()) < end:
                await logger.audit("decision", number=0, **FIELDS)
                alone.append(time.perf_counter() - begun)
            return rate, waits, median(alone), len(waits) / max(batches, 1)

        return asyncio.run(main())


def _line(number: int) -> bytes:
    head = {"timestamp": time.time(), "event_name": "decision", "pid": os.getpid(), "number": number}
    return orjson.dumps({**head, **FIELDS}) + b"\n"


def _write_and_sync(file: int, number: int) -> None:
    os.write(file, _line(number))
    os.fdatasync(file)


def _per_record(directory: Path, seconds: float) -> float:
    file = os.open(directory / "per-record.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def commit(number: int) -> None:
        _write_and_sync(file, number)
        # As a request that goes on: other tasks have their turn.
        await asyncio.sleep(0)

    try:
        return asyncio.run(_many(commit, seconds))[0]
    finally:
        os.close(file)


def _in_threads(directory: Path, seconds: float) -> float:
    file = os.open(directory / "threads.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def main(pool: ThreadPoolExecutor) -> float:
        loop = asyncio.get_running_loop()
        return (await _many(lambda number: loop.run_in_executor(pool, _write_and_sync, file, number), seconds))[0]

    try:
        with ThreadPoolExecutor(POOL) as pool:
            return asyncio.run(main(pool))
    finally:
        os.close(file)


def _sync_s(directory: Path) -> float:
    file = os.open(directory / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    taken = []
    try:
        for number in range(50):
            begun = time.perf_counter()
            _write_and_sync(file, number)
            taken.append(time.perf_counter() - begun)
    finally:
        os.close(file)
    return median(taken)


def _file_system() -> str:
    """Return the type of the file system of the temporary directory."""
    with scratch_directory() as directory:
        place, kind = "", "an unknown file system"
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            _, mounted, found, *_ = line.split()
            if directory.resolve().is_relative_to(mounted) and len(mounted) >= len(place):
                place, kind = mounted, found
        return kind
