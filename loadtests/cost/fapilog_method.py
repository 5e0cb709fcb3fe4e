"""fapilog's own benchmark, by the method that its documentation describes, for fapilog and for ours beside each other.

A child of `bench_fapilog.py`, which reads from its standard input what to measure.

Throughput: calls per second, without waiting for what is behind them; here also until the last record has arrived.
Latency: single calls. A slow sink: one that takes 2 ms per record; only the calls are timed. Burst: 20,000 calls into
that sink, after 2,000 of warm-up that count as well; then the logger is drained. Memory: here the peak of the resident
memory while throughput is measured, above that before, since tracemalloc sees no memory of native code.

A record is a message and one payload of 256 bytes. fapilog has its defaults, as there. Ours has its defaults too; its
slow sink is a reader of a Unix socket that takes 2 ms for each line. Each part runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, Literal, cast

from inference_logging.prove.bench.child import child, places
from inference_logging.prove.bench.machine import forget_peak, peak_bytes, resident_bytes
from inference_logging.prove.bench.result import Estimate
from inference_logging.read.stats.interval import bootstrap, ratio

SLOW_S: Final = 0.002
PAYLOAD: Final = "x" * 256
CONTENDERS: Final = ("fapilog", "ours", "ours-event")
"""`ours` is `get_logger`, which is called as fapilog's logger is."""

FIGURES: Final = (
    "calls_per_s",
    "end_to_end_per_s",
    "latency_mean_ns",
    "latency_median_ns",
    "latency_p95_ns",
    "slow_sink_mean_ns",
    "slow_sink_median_ns",
    "slow_sink_p95_ns",
    "peak_bytes",
)
_MESSAGE: Final = "benchmark"
_MARK: Final = b'"benchmark"'
_DRAIN_S: Final = 90.0
"""A burst needs 22,000 × 2 ms."""
_START_S: Final = 60.0

Part = Literal["throughput", "latency", "slow", "burst"]


@dataclass(frozen=True)
class Sizes:
    """How many calls each part makes."""

    warm_up: int = 1000
    throughput: int = 20_000
    latency: int = 5000
    burst_warm_up: int = 2000
    burst: int = 20_000


QUICK: Final = Sizes(100, 2000, 500, 100, 400)


@dataclass(frozen=True)
class Order:
    """What a child measures."""

    contender: str
    part: Part
    sizes: Sizes
    files: str
    memory: str
    answer: str


@dataclass
class Contender:
    """An open logger: ``call`` makes a record; ``drain`` returns how many it counts as dropped or refused."""

    call: Callable[[], object]
    drain: Callable[[], int]
    arrived: Callable[[], int]


def compared(rounds: int, progress: Callable[[str], object], *, quick: bool) -> dict[str, Any]:
    """Run all parts, the contenders by turns within each round; the burst once, since it is counted and not timed.

    Raises RuntimeError if a child has no answer.
    """
    sizes = QUICK if quick else Sizes()
    found: list[dict[str, dict[str, float]]] = []
    parts: tuple[Part, ...] = ("throughput", "latency", "slow")
    for number in range(rounds):
        found.append({name: {} for name in CONTENDERS})
        for part in parts:
            for contender in CONTENDERS:
                progress(f"fapilog's method, round {number + 1}: {contender}, {part}")
                found[-1][contender].update(_ask(contender, part, sizes))
    bursts: dict[str, dict[str, Any]] = {}
    for contender in ("fapilog", "ours"):
        progress(f"fapilog's method: {contender}, burst")
        bursts[contender] = _ask(contender, "burst", sizes)
    return _result(sizes, found, bursts)


def _result(
    sizes: Sizes, found: list[dict[str, dict[str, float]]], bursts: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    def values(contender: str, name: str) -> list[float]:
        return [round_[contender][name] for round_ in found]

    def to_fapilog(contender: str, name: str) -> Estimate:
        return cast("Estimate", ratio(values(contender, name), values("fapilog", name)).as_json())

    units: dict[str, Any] = {
        contender: {name: bootstrap(values(contender, name)).as_json() for name in FIGURES} for contender in CONTENDERS
    }
    return {
        "version": metadata.version("fapilog"),
        "calls": sizes.throughput,
        "latency_calls": sizes.latency,
        "payload_bytes": len(PAYLOAD),
        "slow_sink_s": SLOW_S,
        "burst_calls": sizes.burst,
        "contenders": units,
        "bursts": bursts,
        "throughput_ratio": to_fapilog("ours", "calls_per_s"),
        "end_to_end_ratio": to_fapilog("ours", "end_to_end_per_s"),
        "latency_ratio": to_fapilog("ours", "latency_mean_ns"),
        "slow_sink_ratio": to_fapilog("ours", "slow_sink_mean_ns"),
        "peak_bytes_ratio": to_fapilog("ours", "peak_bytes"),
        "rounds": found,
    }


def _ask(contender: str, part: Part, sizes: Sizes) -> dict[str, Any]:
    with places() as (place, memory):
        files, answer = place / "files", place / "answer.json"
        files.mkdir()
        order = Order(contender, part, sizes, str(files), str(memory), str(answer))
        found = child("loadtests.cost.fapilog_method", json.dumps(asdict(order)), answer, _DRAIN_S + _START_S)
    if "problem" in found:
        raise RuntimeError(f"fapilog's method, {contender}, {part}: {found['problem']}")
    return found


def measure(order: Order) -> dict[str, float]:
    """Measure one part."""
    files, memory = Path(order.files), Path(order.memory)
    is_slow = order.part in ("slow", "burst")
    counts_peak, before = forget_peak(), resident_bytes()
    with _opened(order.contender, files, memory, slow=is_slow) as contender:
        if order.part == "throughput":
            return _throughput(contender, order.sizes, before if counts_peak else None)
        if order.part == "burst":
            return _burst(contender, order.sizes)
        _call(contender, order.sizes.warm_up)
        name = "slow_sink" if is_slow else "latency"
        return _latency(contender, order.sizes.latency, name)


def _call(contender: Contender, count: int) -> None:
    call = contender.call
    for _ in range(count):
        call()


def _throughput(contender: Contender, sizes: Sizes, before: int | None) -> dict[str, float]:
    _call(contender, sizes.warm_up)
    begin = time.perf_counter()
    _call(contender, sizes.throughput)
    called = time.perf_counter()
    contender.drain()
    drained = time.perf_counter()
    peak = max(peak_bytes() - before, 1) if before is not None else 1
    arrived = max(contender.arrived() - sizes.warm_up, 1)
    return {
        "calls_per_s": sizes.throughput / (called - begin),
        "end_to_end_per_s": arrived / (drained - begin),
        "peak_bytes": float(peak),
    }


def _latency(contender: Contender, count: int, name: str) -> dict[str, float]:
    taken = array("Q", bytes(8 * count))
    call, clock = contender.call, time.perf_counter_ns
    for position in range(count):
        begin = clock()
        call()
        taken[position] = clock() - begin
    ordered = sorted(taken)
    return {
        f"{name}_mean_ns": fmean(ordered),
        f"{name}_median_ns": median(ordered),
        f"{name}_p95_ns": float(ordered[int(0.95 * (count - 1))]),
    }


def _burst(contender: Contender, sizes: Sizes) -> dict[str, Any]:
    submitted = sizes.burst_warm_up + sizes.burst
    begin = time.monotonic()
    _call(contender, submitted)
    refused: list[int] = []
    drain = threading.Thread(target=lambda: refused.append(contender.drain()), daemon=True)
    drain.start()
    drain.join(_DRAIN_S)
    arrived = contender.arrived()
    return {
        "submitted": submitted,
        "arrived": arrived,
        "refused": sum(refused),
        "unexplained": submitted - arrived - sum(refused),
        "seconds": time.monotonic() - begin,
        "drained": bool(refused),
    }


@contextmanager
def _opened(contender: str, files: Path, memory: Path, *, slow: bool) -> Iterator[Contender]:
    if contender == "fapilog":
        yield _fapilog(files, slow=slow)
        return
    if not slow:
        with _ours(contender, files, memory) as opened:
            yield opened
        return
    path = memory / "reader"
    command = [
        sys.executable,
        str(Path(__file__).with_name("slow_reader.py")),
        str(path),
        str(files / "read"),
        str(SLOW_S),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            reader.stdout.readline()
            with _ours(contender, files, memory, sink=f"unix://{path}", drain_deadline_s=0.0) as opened:
                yield opened
        finally:
            reader.kill()


def _fapilog(files: Path, *, slow: bool) -> Contender:
    from fapilog import get_logger
    from fapilog.sinks import rotating_file

    class SlowSink:
        """Takes its time for each record, and then counts it."""

        name = "slow"
        records = 0

        async def start(self) -> None:
            """Begin."""

        async def stop(self) -> None:
            """End."""

        async def write(self, _entry: dict[str, Any]) -> None:
            """Take a record."""
            await asyncio.sleep(SLOW_S)
            self.records += 1

    sink = SlowSink() if slow else rotating_file(files / "fapilog.log")
    logger = get_logger(sinks=[sink])
    return Contender(
        lambda: logger.info(_MESSAGE, payload=PAYLOAD),
        lambda: asyncio.run(logger.stop_and_drain()).dropped,
        (lambda: sink.records) if isinstance(sink, SlowSink) else (lambda: _lines(files)),
    )


@contextmanager
def _ours(contender: str, files: Path, memory: Path, **settings: Any) -> Iterator[Contender]:
    from inference_logging import Config, Logger, get_logger

    with Logger(Config(directory=files, queue_directory=memory / "queues", **settings)) as logger:
        if contender == "ours":
            info = get_logger("bench").info

            def call() -> object:
                return info(_MESSAGE, payload=PAYLOAD)
        else:
            emit = logger.event("bench.request", ["message", "payload"])

            def call() -> object:
                return emit(_MESSAGE, PAYLOAD)

        def drain() -> int:
            logger.flush(_DRAIN_S)
            if settings:
                _wait_for_reader(files)
            return sum(sum(levels.values()) for levels in logger.stats()["dropped"].values())

        yield Contender(call, drain, lambda: _lines(files))


def _wait_for_reader(files: Path) -> None:
    """Wait until the reader of the socket has taken what is in the socket's buffer: nothing comes for half a second."""
    seen, before = _lines(files), -1
    while seen > before:
        time.sleep(0.5)
        seen, before = _lines(files), seen


def _lines(files: Path) -> int:
    """Return how many records are in all files."""
    return sum(path.read_bytes().count(_MARK) for path in files.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> None:
    """Measure what standard input orders, write the answer, and leave at once."""
    order = json.load(sys.stdin)
    order["sizes"] = Sizes(**order["sizes"])
    made = Order(**order)
    answer = measure(made)
    Path(made.answer).write_text(json.dumps(answer), encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main()
