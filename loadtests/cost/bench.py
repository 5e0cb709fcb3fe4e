"""What the parts beside the request path take, with the goal beside each figure: ``make bench``.

    python -m loadtests.cost.bench [SECTION ...] [--quick | --keep] [--json PATH]

The listener, its process, `verify` and the audit lane; each section's function says how it measures and why. The load
average is printed because it must be read with the figures: what others run at the same time takes the listener's core
first. The exit status says whether the measurement went through, not whether the goals were reached.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging import Config, Logger
from inference_logging.cli import native
from inference_logging.prove.bench.machine import file_system, memory_bytes
from loadtests import harness
from loadtests.cost.loggers import (
    DRAIN_S,
    EVENT,
    FIELDS,
    emit_many,
    emit_until_accepted,
    fitting_queue_bytes,
    ours,
)
from loadtests.harness import HOST, ROOT, Report, at_least, at_most, memory_directory, ratios, scratch_directory
from loadtests.results import keep

BATCH: Final = 1000
"""Records that are made before it is looked again whether they are enough."""
RECORDS: Final = 10_000
DEADLINE_S: Final = 60.0
TASKS: Final = 256
POOL: Final = 32
DECISION: Final = {"user": "u-1234", "model": "tiny", "policy": "default", "allowed": True, "input_tokens": 812}
ALL_PATTERNS: Final = ("email", "phone", "card", "key", "bearer")
REDACTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "nothing found": {"redact_patterns": ALL_PATTERNS, "redact_fields": ("password", "customer.email")},
    "one field of each record replaced": {"redact_patterns": ALL_PATTERNS, "redact_fields": ("user",)},
}

Commit = Callable[[int], Awaitable[object]]


def listener(quick: bool) -> Report:
    """Measure how quickly the listener turns a full queue into JSON lines on tmpfs, on one core, also redacting.

    Each round fills a large queue first, through a logger that does not listen. Then a second logger on the same queue
    directory starts its listener thread; its affinity is set to one core just before, which the thread inherits, and
    nobody emits meanwhile. So the listener has the core to itself and never waits for input.

    *wall*: JSON bytes written (the listener's own count) divided by the time from opening the second logger until the
    filled queue is empty. Starting the thread, electing it, opening and rotating segments are in it. *CPU* divides by
    the listener thread's CPU time instead, which is the same thing on an idle machine.

    A first round is thrown away, and the queue is no larger than it must be: in a virtual machine the first touch of
    memory that the host has not given yet costs the toucher three times what the listener does with it.
    """
    rounds, queue_bytes = (2, 1 << 20) if quick else (9, fitting_queue_bytes(1 << 26))
    wall, cpu, line_bytes = [], [], 0.0
    redacting: dict[str, list[float]] = {name: [] for name in REDACTIONS}
    _drain_full_queue(queue_bytes)
    for _ in range(rounds):
        written, count, taken_s, cpu_s = _drain_full_queue(queue_bytes)
        wall.append(written / taken_s / 1e6)
        cpu.append(written / cpu_s / 1e6)
        line_bytes = written / count
        for name, parameters in REDACTIONS.items():
            written, _, _, cpu_s = _drain_full_queue(queue_bytes, **parameters)
            redacting[name].append(written / cpu_s / 1e6)
    report = Report(f"listener: a full queue of {queue_bytes >> 20} MiB to JSON lines on tmpfs, one core")
    report.add("JSON lines, wall time", "MB/s", wall, at_least(500))
    report.add("JSON lines, CPU time of the thread", "MB/s", cpu, at_least(500))
    for name, rates in redacting.items():
        report.add(f"the same, redacting: {name}", "MB/s", rates)
    report.remarks.append(f"{line_bytes:.0f} bytes of JSON per record on average")
    report.remarks.append(f"redacting: all patterns ({', '.join(ALL_PATTERNS)}) and one or two fields")
    return report


def _drain_full_queue(queue_bytes: int, **redaction: tuple[str, ...]) -> tuple[int, int, float, float]:
    with (
        scratch_directory(memory_directory()) as directory,
        ours(directory, queue_bytes=queue_bytes, listener="external", **redaction) as filler,
    ):
        count = _fill(filler)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(cores)})
        try:
            start = time.perf_counter()
            drainer = Logger(filler.config.model_copy(update={"listener": "thread"}))
        finally:
            os.sched_setaffinity(0, cores - {max(cores)} or cores)
        with drainer:
            _wait_until_empty(filler)
            taken_s = time.perf_counter() - start
            published = drainer.stats()["listener"]
        os.sched_setaffinity(0, cores)
        books = filler.stats()
        if not books["accepted"] == books["written"] == count:
            raise RuntimeError(f"{count} records emitted, but the books say {books}")
    return published["bytes_written"], count, taken_s, published["listener_cpu_s"]


def _fill(filler: Logger) -> int:
    count, emit = 0, filler.event(EVENT, FIELDS)
    while filler.stats()["bytes_in_queue"] < 0.75 * filler.config.queue_bytes:
        emit_many(emit, BATCH)
        count += BATCH
    return count


def _wait_until_empty(filler: Logger) -> None:
    patience = time.monotonic() + DRAIN_S
    while filler.stats()["in_queue"]:
        if time.monotonic() > patience:
            raise RuntimeError(f"the listener did not write everything within {DRAIN_S} s: {filler.stats()}")
        time.sleep(0.0005)


def sidecar(quick: bool) -> Report:
    """Measure a listener beside the servers, with Python and without: the time to its first answer, and memory.

    Each round starts the two after another on an empty queue directory, in changing order. *Start* is the time from
    `exec` to the first answer of `/live`. *Resident* is what the kernel counts for the process (`VmRSS`) less the pages
    that it shares with producers (`RssShmem`), once it leads and has written 10,000 records of a producer.

    The listener without Python is what `make listener` has built, else the one that cargo builds here.
    """
    contenders = {
        "with Python": (sys.executable, "-m", "inference_logging.cli.main"),
        "without Python": (str(_binary(quick)),),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(2 if quick else 15):
        for name in sorted(contenders, reverse=number % 2 == 1):
            found[name].append(_life(contenders[name]))
    report = Report("sidecar: `listen` beside a server, from exec to the first answer of /live")
    for name, goals in {"with Python": (None, None), "without Python": (at_most(20), at_most(6))}.items():
        report.add(f"start, {name}", "ms", [1e3 * start_s for start_s, _ in found[name]], goals[0])
        report.add(f"resident beside mapped queues, {name}", "MiB", [mib for _, mib in found[name]], goals[1])
    report.remarks.append(f"the program without Python: {Path(contenders['without Python'][0]).name}")
    return report


def _binary(quick: bool) -> Path:
    static = ROOT / "dist" / "inference-logging-listener"
    if static.exists():
        return static
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    # What the tests have built does where the figures mean nothing.
    folder, profile = ("debug", "dev") if quick else ("release", "release")
    build = [cargo, "build", "--quiet", "--profile", profile, "--package", "inference_logging_program"]
    subprocess.run(build, cwd=ROOT / "native", check=True)
    return ROOT / "native" / "target" / folder / "inference-logging-listener"


def _life(command: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds to the first answer, and MiB of memory after work."""
    with scratch_directory(memory_directory()) as directory:
        config = Config(listener="external", directory=directory / "segments", queue_directory=directory / "queues")
        variables = harness.environment(**{name: getattr(config, name) for name in config.model_fields_set})
        port, console = harness.free_port(), directory / "console"
        listen = [*command, "listen", "--metrics-port", str(port), "--metrics-address", HOST]
        begun = time.perf_counter()
        with console.open("wb") as said, harness.process(listen, variables, said) as process:
            while not _answers(port):
                if time.perf_counter() > begun + DEADLINE_S:
                    raise RuntimeError(f"the listener does not answer:\n{console.read_text(errors='replace')}")
                time.sleep(0.001)
            start_s = time.perf_counter() - begun
            with Logger(config) as logger:
                emit_until_accepted(logger.event(EVENT, FIELDS), RECORDS)
                logger.flush()
                resident, shared = (memory_bytes(figure, str(process.pid)) for figure in ("VmRSS", "RssShmem"))
                return start_s, (resident - shared) / 1024**2


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=DEADLINE_S) as client:
        client.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return b" 200 " in client.recv(64)
    return False


def verify(quick: bool) -> Report:
    """Measure how quickly `verify` proves the books of a directory, beside a Python loop over the same lines.

    Segments are written by a logger of this run and stand in the page cache: what is measured is the reading, not the
    disk. The loop does the least that a check could: it parses each line and looks whether the sequences are dense.
    """
    rounds, size_bytes = (2, 1 << 20) if quick else (5, 256 << 20)
    native, loop = [], []
    with scratch_directory(memory_directory()) as directory:
        written = _write(directory, size_bytes)
        for _ in range(rounds):
            native.append(written / harness.seconds(lambda: _assert_balanced(directory)) / 1e6)
            loop.append(written / harness.seconds(lambda: _assert_dense(directory)) / 1e6)
    report = Report(f"verify: {written / 1e6:.0f} MB of plain segments in memory, all processors")
    report.add("verify: gaps, footers, checksums", "MB/s", native)
    report.add("Python, orjson: gaps only", "MB/s", loop)
    report.add("ratio", "times", ratios(native, loop), at_least(10))
    return report


def _write(directory: Path, size_bytes: int) -> int:
    with ours(directory) as logger:
        emit = logger.event(EVENT, FIELDS)
        while _size(directory) < size_bytes:
            emit_until_accepted(emit, RECORDS)
            logger.flush()
    return _size(directory)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in harness.segments(directory))


def _assert_balanced(directory: Path) -> None:
    directories = sorted({path.parent for path in harness.segments(directory)})
    standard_output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        assert native.run(["verify", "--", *map(str, directories)], Config()) == 0
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
        os.close(nowhere)


def _assert_dense(directory: Path) -> None:
    sequences: set[int] = set()
    for path in harness.segments(directory):
        with path.open("rb") as lines:
            sequences.update(record["seq"] for record in map(orjson.loads, lines) if "seq" in record)
    assert len(sequences) == max(sequences) + 1


def audit(quick: bool) -> Report:
    """Measure awaited audit records per second, beside a file that is synced for each record.

    256 tasks of one event loop each make an audit record, wait until it is committed, and go on. *Ours*: ``await
    logger.audit(...)`` with its hash chain, where one fsync serves all who wait. *fsync per record*: the same tasks
    each write the same fields as a line of JSON and call ``fdatasync``, in the event loop, as an audit log is usually
    written, without a chain. *In threads*: the same in a pool of 32 threads, so that the event loop goes on.

    Every contender runs once in each round. TMPDIR chooses the disk: on tmpfs an fsync costs nothing, and the figures
    mean nothing.
    """
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
    with ours(directory, audit="on", audit_directory=directory / "audit") as logger:

        def batches() -> int:
            return int(logger.stats()["audit"]["listener"]["batches_written"])

        async def main() -> tuple[float, float]:
            await logger.audit("decision", number=0, **DECISION)
            before = batches()
            rate, made = await _many(lambda number: logger.audit("decision", number=number, **DECISION), seconds)
            return rate, made / max(batches() - before, 1)

        return asyncio.run(main())


def _line(number: int) -> bytes:
    head = {"timestamp": time.time(), "event_name": "decision", "pid": os.getpid(), "number": number}
    return orjson.dumps({**head, **DECISION}) + b"\n"


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


SECTIONS: dict[str, Callable[[bool], Report]] = {
    "listener": listener,
    "sidecar": sidecar,
    "verify": verify,
    "audit": audit,
}


def main() -> None:
    """Run the sections that were asked for, print each as soon as it is done."""
    options = _options()
    names = SECTIONS if "all" in options.sections else dict.fromkeys(options.sections)

    def measure() -> dict[str, Any]:
        reports: dict[str, Report] = {}
        for name in names:
            reports[name] = SECTIONS[name](options.quick)
            reports[name].print()
        print(f"\n{_summary(list(reports.values()))}", flush=True)
        return {"sections": {name: report.as_json() for name, report in reports.items()}}

    found = harness.measured(options, "make bench", "median (lowest … highest round)", measure)
    if options.keep:
        print(f"kept in {keep('bench', found)}")


def _options() -> argparse.Namespace:
    parser = harness.parser(__doc__, keeps=True)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, "all"], default="all", metavar="SECTION")
    options = parser.parse_args()
    if options.keep and "all" not in options.sections:
        parser.error(f"--keep with {' '.join(options.sections)}: only the result of all sections is kept")
    return options


def _summary(reports: list[Report]) -> str:
    reached = [figure.goal.is_reached(figure.found.value) for one in reports for figure in one.figures if figure.goal]
    return f"{sum(reached)} of {len(reached)} goals reached"


if __name__ == "__main__":
    main()
