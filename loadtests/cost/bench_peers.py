"""What this project wants to reach beside other ways of logging, and fapilog's own benchmark: ``make bench-peers``.

    python -m loadtests.cost.bench_peers [--quick] [--json PATH]

A slow sink: one that takes 2 ms per record; only the calls are timed, one by one. Burst: 20,000 calls into that sink,
after 2,000 of warm-up that count as well; then the logger is drained. What its method measures besides,
`inference-logging bench` measures of both.

Goals are ratios in one run: of what `inference-logging bench` found, and of fapilog's method, which is measured here.

A record is a message and one payload of 256 bytes. Both have their defaults; the slow sink of ours is a reader of a
Unix socket that takes 2 ms for each line. Each part runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple, TypedDict, cast

from inference_logging.prove.bench.child import child, places
from inference_logging.prove.bench.configurations_round import dropped
from inference_logging.prove.bench.loops import Timings, closed, space
from inference_logging.prove.bench.peers import OURS
from inference_logging.prove.bench.record import Call
from inference_logging.prove.bench.result import Cell, Estimate, Result
from inference_logging.read.stats.interval import ratio
from loadtests import harness

MODULE: Final = "loadtests.cost.bench_peers"
ROUNDS: Final = 3
SLOW_S: Final = 0.002
PAYLOAD: Final = "x" * 256
WARM_UP: Final = 1000
_MESSAGE: Final = "benchmark"
_DRAIN_S: Final = 90.0
"""A burst needs 22,000 × 2 ms."""
_START_S: Final = 60.0
_SMALL: Final = 256


class Goal(TypedDict):
    """A goal and its verdict: `reached`, `not reached` or `not measured`, the last two with a reason behind a colon."""

    name: str
    goal: str
    value: float | None
    low: float | None
    high: float | None
    verdict: str


def goals(result: Result) -> list[Goal]:
    """Return our goals for what `inference-logging bench` finds, with their verdicts."""
    return [_tail(result), _arrived(result), *_native_logger(result)]


def judged(
    name: str,
    wanted: str,
    found: Estimate | None,
    reached: Callable[[float], bool],
    reason: str = "not asked for",
    missed: str = "",
) -> Goal:
    """Return a goal with its verdict; ``reason``: why it was not measured, ``missed``: why it is not reached."""
    if found is None:
        none = {"value": None, "low": None, "high": None}
        return cast("Goal", {"name": name, "goal": wanted, **none, "verdict": f"not measured: {reason}"})
    verdict = "reached" if reached(found["value"]) else f"not reached: {missed}" if missed else "not reached"
    return {"name": name, "goal": wanted, **found, "verdict": verdict}


def exactly(value: float) -> Estimate:
    """Return a count as a figure."""
    return {"value": value, "low": value, "high": value}


def _missing(result: Result, *names: str) -> str:
    """Return why a peer has no figures."""
    reasons = {entry["name"]: entry["missing"] for entry in result["peers"]}
    found = ((name, reasons.get(name, "not asked for")) for name in names)
    return "; ".join(f"{name}: {reason}" for name, reason in found if reason) or f"no closed loop with {_SMALL} B"


def _tail(result: Result) -> Goal:
    name = f"p99.9 of a call, 64 threads ÷ 1 thread, closed loop, {_SMALL} B, ours"
    if (empty := _many_to_one(result, "empty")) is not None:
        name += f" (the empty call: {empty['value']:.2f})"
    reason = f"needs {OURS} with 1 and 64 threads"
    return judged(name, "≤ 2", _many_to_one(result, OURS), lambda value: value <= 2, reason)


def _many_to_one(result: Result, peer: str) -> Estimate | None:
    return _quotient(_of_rounds(result, peer, 64, "p999_ns"), _of_rounds(result, peer, 1, "p999_ns"))


def _of_rounds(result: Result, peer: str, threads: int, figure: str) -> dict[int, float]:
    """Return a figure of the closed loop with small records, by round; without the rounds that lack it."""
    cells = (cell for cell in result["cells"] if (cell["peer"], cell["threads"]) == (peer, threads))
    rounds = [found for cell in cells if (cell["loop"], cell["record_bytes"]) == ("closed", _SMALL)
              for found in cell["rounds"]]  # fmt: skip
    return {found["round"]: value for found in rounds if (value := found[figure])}


def _quotient(above: Mapping[int, float], below: Mapping[int, float]) -> Estimate | None:
    """Return the ratio within each round that both have; None if there is none."""
    both = sorted(above.keys() & below.keys())
    if not both:
        return None
    return cast("Estimate", ratio([above[number] for number in both], [below[number] for number in both]).as_json())


def _arrived(result: Result) -> Goal:
    ours = {entry["name"] for entry in result["peers"] if entry["ours"]}
    least = [_least_arrived(cell) for cell in result["cells"] if cell["peer"] in ours]
    known = [ratio for ratio in least if ratio is not None]
    found = exactly(min(known)) if known and len(known) == len(least) else None
    reason = "a cell has no figure" if least else _missing(result, OURS)
    return judged("arrived ÷ accepted, the least of all cells of ours", "1", found, lambda value: value == 1, reason)


def _least_arrived(cell: Cell) -> float | None:
    ratios: list[float | None] = [found["arrived_ratio"] for found in cell["rounds"]]
    known = [value for value in ratios if value is not None]
    return min(known) if known and len(known) == len(ratios) and cell["problem"] is None else None


def _native_logger(result: Result) -> list[Goal]:
    native, queued, null = "ours-native-logger", "stdlib-queue", "stdlib-null"
    # The median of calls timed by themselves: none waits there for the thread of the QueueHandler.
    call = {name: _of_rounds(result, name, 1, "p50_ns") for name in (native, queued, null)}
    below_level = {time["peer"]: dict(enumerate(time["rounds"])) for time in result["filtered"]}
    filtered = _quotient(below_level.get(native, {}), below_level.get(null, {}))
    return [
        judged("native logger: enabled call, QueueHandler ÷ ours", "≥ 15", _quotient(call[queued], call[native]),
              lambda value: value >= 15, _missing(result, native, queued),
              "the record has ten attributes, whose dictionary the caller makes"),
        judged("native logger: enabled call, ours ÷ the standard library's into NullHandler", "< 1",
              _quotient(call[native], call[null]), lambda value: value < 1, _missing(result, native, null)),
        judged("native logger: filtered-out call, ours ÷ the standard library's", "≤ 1.05", filtered,
              lambda value: value <= 1.05, _missing(result, native, null)),
    ]  # fmt: skip


class Contender(NamedTuple):
    """An open logger: ``call`` makes a record; ``drain`` returns how many it counts as dropped or refused."""

    call: Call
    drain: Callable[[], int]
    arrived: Callable[[], int]


def compared(rounds: int, progress: Callable[[str], object], *, quick: bool) -> dict[str, Any]:
    """Run all parts, the contenders by turns within each round; the burst once, since it is counted and not timed.

    Raises ``RuntimeError`` if a child has no answer.
    """
    sizes = {"slow": 500, "burst": 500} if quick else {"slow": 5000, "burst": 22_000}

    def ask(contender: str, part: str) -> dict[str, Any]:
        progress(f"fapilog's method: {contender}, {part}")
        with places() as (place, memory):
            order = {"contender": contender, "part": part, "calls": sizes[part]}
            order |= {"files": str(place), "memory": str(memory)}
            found = child(MODULE, json.dumps(order), place / "answer.json", _DRAIN_S + _START_S, "--measure")
        if "problem" in found:
            raise RuntimeError(f"fapilog's method, {contender}, {part}: {found['problem']}")
        return found

    found: dict[str, list[dict[str, float]]] = {"fapilog": [], "ours": []}
    for _ in range(rounds):
        for contender, of_rounds in found.items():
            of_rounds.append(ask(contender, "slow"))

    ours, theirs = ([one["slow_mean_ns"] for one in found[contender]] for contender in ("ours", "fapilog"))
    return {
        "slow_sink_ratio": ratio(ours, theirs).as_json(),
        "bursts": {contender: ask(contender, "burst") for contender in found},
        "rounds": found,
    }


def goals_of_method(found: dict[str, Any]) -> list[Goal]:
    """Return our goals for fapilog's method, with their verdicts."""
    burst, name = found["bursts"]["ours"], "fapilog's method: "
    return [
        judged(f"{name}a call into a sink of 2 ms, ours ÷ fapilog", "≤ 1/200", found["slow_sink_ratio"],
               lambda value: value <= 1 / 200, missed=_slow_sink(found)),
        judged(f"{name}burst into a sink of 2 ms, arrived ÷ submitted, ours", "1",
               exactly(burst["arrived"] / burst["submitted"]), lambda value: value == 1),
        judged(f"{name}burst into a sink of 2 ms, unexplained, ours", "0", exactly(burst["unexplained"]),
               lambda value: value == 0),
    ]  # fmt: skip


def _slow_sink(found: dict[str, Any]) -> str:
    """Return what a call into a slow sink consists of."""
    burst = found["bursts"]["fapilog"]
    ours, theirs = (median(one["slow_median_ns"] for one in found["rounds"][name]) for name in ("ours", "fapilog"))
    return (
        f"half of ours take {ours:.0f} ns or less; fapilog's take {theirs / 1000:.1f} µs, since it refuses most "
        f"records of a sink that is behind ({burst['refused']:,} of {burst['submitted']:,} in the burst), which is its "
        "cheapest call"
    )


def measure(contender: str, part: str, calls: int, files: str, memory: str) -> dict[str, Any]:
    """Measure one part."""
    with _opened(contender, Path(files), Path(memory)) as opened:
        if part == "burst":
            return _burst(opened, calls)
        for number in range(WARM_UP):
            opened.call(number)
        timings = Timings(space(calls))
        closed(opened.call, timings, 0, sys.maxsize)
        return {"slow_mean_ns": fmean(timings.times()), "slow_median_ns": median(timings.times())}


def _burst(opened: Contender, calls: int) -> dict[str, Any]:
    for number in range(calls):
        opened.call(number)
    refused: list[int] = []
    drain = threading.Thread(target=lambda: refused.append(opened.drain()), daemon=True)
    drain.start()
    drain.join(_DRAIN_S)
    arrived, dropped = opened.arrived(), sum(refused)
    return {"submitted": calls, "arrived": arrived, "refused": dropped, "unexplained": calls - arrived - dropped}


@contextmanager
def _opened(contender: str, files: Path, memory: Path) -> Iterator[Contender]:
    if contender == "fapilog":
        yield _fapilog()
        return
    command = (sys.executable, "-m", MODULE, "--read", memory / "reader", files / "read")
    reader = harness.Child(*command, said=memory / "said")
    try:
        reader.hear("listening")
        with _ours(files, memory) as opened:
            yield opened
    finally:
        reader.kill()


def _fapilog() -> Contender:
    from fapilog import get_logger

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

    sink = SlowSink()
    logger = get_logger(sinks=[sink])
    return Contender(
        lambda _: logger.info(_MESSAGE, payload=PAYLOAD),
        lambda: asyncio.run(logger.stop_and_drain()).dropped,
        lambda: sink.records,
    )


@contextmanager
def _ours(files: Path, memory: Path) -> Iterator[Contender]:
    from inference_logging import Config, Logger, get_logger

    def lines() -> int:
        every = (path for path in files.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(path.read_bytes().count(f'"{_MESSAGE}"'.encode()) for path in every)

    settings: dict[str, Any] = {"sink": f"unix://{memory / 'reader'}", "drain_deadline_s": 0.0}
    with Logger(Config(directory=files, queue_directory=memory / "queues", **settings)) as logger:
        info = get_logger("bench").info

        def drain() -> int:
            logger.flush(_DRAIN_S)
            seen, before = lines(), -1
            while seen > before:  # the reader takes what is in the socket's buffer: nothing comes for half a second
                time.sleep(0.5)
                seen, before = lines(), seen
            return dropped(logger)

        yield Contender(lambda _: info(_MESSAGE, payload=PAYLOAD), drain, lines)


def read_slowly(path: str, output: str) -> None:
    """Read lines from a Unix socket, take a time for each, and then write it: the slow sink, a program of its own."""
    with socket.socket(socket.AF_UNIX) as server, Path(output).open("wb", buffering=0) as written:
        server.bind(path)
        server.listen()
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    time.sleep(SLOW_S)
                    written.write(line)


def main() -> None:
    """Measure, and print ratios and goals."""
    parser = harness.parser(__doc__)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_slowly(*options.read)
    elif options.measure:
        order = json.load(sys.stdin)
        (Path(order["files"]) / "answer.json").write_text(json.dumps(measure(**order)), encoding="utf-8")
        os._exit(0)  # without waiting for what still drains
    found = compared(1 if options.quick else ROUNDS, lambda step: print(step, flush=True), quick=options.quick)
    verdicts = goals_of_method(found)
    for goal in verdicts:
        print(f"{goal['name']}, goal {goal['goal']}: {goal['value']:.4g}: {goal['verdict']}")
    about = {"command": "make bench-peers", "quick": options.quick}
    harness.write(options.json, {**about, "found": found, "goals": verdicts})


if __name__ == "__main__":
    main()
