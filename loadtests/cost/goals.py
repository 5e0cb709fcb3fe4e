"""What this project wants `inference-logging bench` to find, as ratios in one run, and whether it did; else why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypedDict, cast

from inference_logging.prove.bench.peers import OURS
from inference_logging.prove.bench.result import Cell, Estimate, Result
from inference_logging.read.stats.interval import ratio

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
    """Return all goals with their verdicts."""
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
