"""The page of the fleet simulation: what the kept result says, for each size of a fleet.

``python -m loadtests.fleet.fleet_page`` writes it again from the kept result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from loadtests import results
from loadtests.results_text import Part, markdown

PART: Final = "fleet"
RESULTS: Final = results.RESULTS / "fleet"
PAGE: Final = RESULTS / "README.md"
BEGIN: Final = "<!-- begin: fleet, written by `python -m loadtests.fleet.fleet_page` -->"
END: Final = "<!-- end: fleet -->"
SHIPPERS: Final = {"own": "a shipper of its own", "following": "a shipper for its zone"}


def newest() -> Part:
    """Return the newest result that is kept."""
    return results.newest(RESULTS)[PART]


def updated(page: str, part: Part) -> str:
    """Return the page with the figures of ``part``; raises ``ValueError`` without its marks."""
    return results.between(page, [(BEGIN, END, lambda: block(part))])


def block(part: Part) -> str:
    """Return what stands between the marks."""
    return "\n\n".join("\n".join(lines) for lines in (_source(part), _table(part.result)))


def cost_us(run: Mapping[str, Any], shipper: str) -> float | None:
    """Return the CPU time of shippers of a kind for a record, in microseconds; None where there is no such shipper."""
    records = run["shippers"]["records"][shipper]
    return run["shippers"]["cpu_s"][shipper] / records * 1e6 if records else None


def worst_lag_s(result: Mapping[str, Any], run: Mapping[str, Any], begin_s: float, end_s: float) -> float:
    """Return how long the fleet takes to accept as many records as are not in Kafka yet, at most within a time."""
    per_s: float = run["kafka"]["accepted"] / result["seconds"]
    waiting = [accepted - there for at_s, accepted, there in run["curve"] if begin_s <= at_s < end_s]
    return float(max(0, *waiting)) / per_s


def _source(part: Part) -> Iterator[str]:
    place, result = part.machine, part.result
    yield (
        f"Measured on {part.made[:10]}: {place['cpu']}, {place['cores']} cores, {place['memory_gib']} GiB, kernel "
        f"{place['kernel']}, Python {place['python']}, shared with other work. "
        f"`loadtests/results/fleet/{part.file}.json`, by `{part.command}`."
    )
    yield ""
    speed = result["trace_s"] / result["seconds"]
    yield (
        f"Each pod answers {result['requests']} requests in {result['seconds']:.0f} s, at the times of the trace "
        f"{result['trace']}, {speed:.0f} times as fast."
    )


def _table(result: Mapping[str, Any]) -> Iterator[str]:
    runs = result["runs"]
    heads = ["pods", *(f"{run['pods']:,}" for run in runs)]
    yield from markdown(heads, ([name, *cells] for name, cells in _cells(result, runs)), "---:")


def _cells(result: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Iterable[str]]]:
    """Iterate over the rows: a name, and a cell of each run."""
    yield "processes, in all their lives", (f"{run['processes']:,}" for run in runs)
    yield "records accepted", (f"{run['kafka']['accepted']:,}" for run in runs)
    yield "**missing in Kafka**", (f"**{run['kafka']['missing']:,}**" for run in runs)
    yield "copies in Kafka", (f"{run['kafka']['copies']:,}" for run in runs)
    yield "dropped by a full queue", (f"{run['dropped']:,}" for run in runs)
    yield "accepted and not noted, in killed processes", (f"{run['kafka']['beyond']:,}" for run in runs)
    yield "`verify` of all volumes", ("balances" if run["verified"] else "fails" for run in runs)
    for name, first, last in (
        ("without an event", None, "broker killed"), ("while a broker restarts", "broker killed", "zone lost"),
        ("after the zone is lost", "zone lost", "deploy begins"), ("during the deploy", "deploy begins", "deploy ends"),
    ):  # fmt: skip
        times = [(run["events"][first] if first else 0, run["events"][last]) for run in runs]
        worsts = (worst_lag_s(result, run, *both) for run, both in zip(runs, times, strict=True))
        yield f"worst lag {name}, s", [f"{value:.1f}" for value in worsts]
    ended = [run["events"]["shipped"] - run["events"]["pods ended"] for run in runs]
    yield "all shipped after the end of the pods, s", [f"{value:.1f}" for value in ended]
    for shipper, name in SHIPPERS.items():
        spent = [cost_us(run, shipper) for run in runs]
        yield f"CPU for a record: {name}, µs", ["" if one is None else f"{one:.0f}" for one in spent]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), newest()), encoding="utf-8")
