"""fapilog's own benchmark for it and for ours, with what this project wants to reach by it: of ``make bench-peers``.

    python -m loadtests.cost.bench_fapilog [--quick] [--json PATH]

`fapilog_method.py` says what is measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from inference_logging.prove.bench.result import NOT_REACHED, REACHED, Estimate, Goal
from loadtests.cost.fapilog_method import compared

ROUNDS: Final = 3
RATIOS: Final = ("throughput_ratio", "end_to_end_ratio", "latency_ratio", "slow_sink_ratio", "peak_bytes_ratio")


def goals(found: dict[str, Any]) -> list[Goal]:
    """Return all goals with their verdicts."""
    burst = found["bursts"]["ours"]
    return [
        _goal("calls per second, ours ÷ fapilog", "≥ 80", found["throughput_ratio"], lambda value: value >= 80),
        _goal("a call into a sink of 2 ms, ours ÷ fapilog", "≤ 1/200", found["slow_sink_ratio"],
              lambda value: value <= 1 / 200, _slow_sink(found)),
        _goal("burst into a sink of 2 ms, arrived ÷ submitted, ours", "1",
              _exactly(burst["arrived"] / burst["submitted"]), lambda value: value == 1),
        _goal("burst into a sink of 2 ms, unexplained, ours", "0", _exactly(burst["unexplained"]),
              lambda value: value == 0),
    ]  # fmt: skip


def _goal(name: str, wanted: str, found: Estimate, reached: Callable[[float], bool], missed: str = "") -> Goal:
    why = f"{NOT_REACHED}: {missed}" if missed else NOT_REACHED
    verdict = REACHED if reached(found["value"]) else why
    return {"name": f"fapilog's method: {name}", "goal": wanted, **found, "verdict": verdict}


def _exactly(value: float) -> Estimate:
    return {"value": value, "low": value, "high": value}


def _slow_sink(found: dict[str, Any]) -> str:
    """Return what a call into a slow sink consists of."""
    burst = found["bursts"]["fapilog"]
    ours, theirs = (found["contenders"][name]["slow_sink_median_ns"]["value"] for name in ("ours", "fapilog"))
    refused = f"{burst['refused']:,} of {burst['submitted']:,}"
    return (
        f"half of ours take {ours:.0f} ns or less; fapilog's take {theirs / 1000:.1f} µs, since it refuses most "
        f"records of a sink that is behind ({refused} in the burst), which is its cheapest call"
    )


def main() -> None:
    """Measure, and print ratios and goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    found = compared(1 if options.quick else ROUNDS, lambda step: print(step, flush=True), quick=options.quick)
    for name in RATIOS:
        print(
            f"{name}, ours ÷ fapilog: {found[name]['value']:.4g} ({found[name]['low']:.4g}…{found[name]['high']:.4g})"
        )
    judged = goals(found)
    for goal in judged:
        print(f"{goal['name']}, goal {goal['goal']}: {goal['value']:.4g}: {goal['verdict']}")
    if options.json:
        content = {"command": "make bench-peers", "quick": options.quick, "found": found, "goals": judged}
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
