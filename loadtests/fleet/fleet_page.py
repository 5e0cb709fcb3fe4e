"""The page of the fleet simulation: its picture, its table, and what it means for more pods than one machine can hold.

``python -m loadtests.fleet.fleet_page`` writes both again from the kept result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadtests import results
from loadtests.fleet.fleet_pods import ZONES
from loadtests.results_text import Part, markdown

PART: Final = "fleet"
RESULTS: Final = results.RESULTS / "fleet"
PAGE: Final = RESULTS / "README.md"
PICTURE: Final = RESULTS / "fleet-simulation.png"
BEGIN: Final = "<!-- begin: fleet, written by `python -m loadtests.fleet.fleet_page` -->"
END: Final = "<!-- end: fleet -->"
ON_PAPER: Final = (1_000, 10_000, 100_000)
REPLICAS: Final = 3
BROKERS: Final = "brokers, cores"
LOST: Final = 2
"""The zone that is lost."""
DAY_S: Final = 86_400


class Place(NamedTuple):
    """A part of the way of a record: what one of ``more`` takes, and how many there are at first."""

    name: str
    unit: str
    takes: float
    first: int
    more: str


PLACES: Final = (
    Place("consumers", "cores", 1.0, 1, "consumers, a partition each at least"),
    Place("engine", "cores", 16.0, 1, "engine's servers of 16 cores"),
    Place("brokers' processors", "cores", 8.0, 3, "brokers of 8 cores, for their processors"),
    Place("brokers' disks", "MB/s", 200.0, 3, "brokers with disks of 200 MB/s, for their disks"),
)
"""A consumer is one process with one core. The others are servers as they are bought: assumptions, no figures."""
FULL: Final = 0.5
"""The share of a place that is used before another one is added."""


def newest() -> Part:
    """Return the newest result that is kept."""
    return results.newest(RESULTS)[PART]


def write(part: Part) -> None:
    """Write the picture, and what stands between the marks of the page."""
    plot(part, PICTURE)
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), part), encoding="utf-8")


def updated(page: str, part: Part) -> str:
    """Return the page with the figures of ``part``; raises ``ValueError`` without its marks."""
    return results.between(page, [(BEGIN, END, lambda: block(part))])


def block(part: Part) -> str:
    """Return what stands between the marks."""
    return "\n\n".join("\n".join(lines) for lines in (_source(part), _table(part.result), _on_paper(part.result)))


def costs(result: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return microseconds of CPU for a record, by who spends them; None: nobody does, or no more than idle."""
    shippers, engine, accepted = run["shippers"], run["engine"], run["kafka"]["accepted"]
    idle_s = result["brokers_idle_cores"] * run["curve"][-1][0]

    def of(seconds: float, records: float) -> float | None:
        return seconds / records * 1e6 if records and seconds > 0.0 else None

    return {
        "own shipper": of(shippers["cpu_s"]["own"], shippers["records"]["own"]),
        "zone shipper": of(shippers["cpu_s"]["following"], shippers["records"]["following"]),
        "brokers": of(run["brokers_cpu_s"] - idle_s, accepted),
        "consumer": of(engine["consumer_cpu_s"], engine["rows"]),
        "engine": of(engine["cpu_s"], engine["rows"]),
    }


def lag(result: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return over time how long the fleet takes to accept as many records as are not in Kafka yet, in seconds."""
    per_s = run["kafka"]["accepted"] / result["seconds"]
    return [(at_s, max(0, accepted - there) / per_s) for at_s, accepted, there in run["curve"]]


def worst(curve: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Return the greatest lag within a time."""
    return max((value for at_s, value in curve if begin_s <= at_s < end_s), default=0.0)


def _source(part: Part) -> Iterator[str]:
    place, result = part.machine, part.result
    yield f"![Lag over time, and CPU time for a record, by the number of pods]({PICTURE.name})"
    yield ""
    yield (
        f"Measured on {part.made[:10]}: {place['cpu']}, {place['cores']} cores, {place['memory_gib']} GiB, kernel "
        f"{place['kernel']}, Python {place['python']}, shared with other work. "
        f"`loadtests/results/fleet/{part.file}.json`, by `{part.command}`."
    )
    yield ""
    speed = result["trace_s"] / result["seconds"]
    yield (
        f"Each pod answers {result['requests']} requests in {result['seconds']:.0f} s, at the times of the trace "
        f"{result['trace']}, {speed:.0f} times as fast. The CPU time for a record, "
        f"of the largest fleet divided by that of the smallest: "
        f"{', '.join(_change(result, name) for name in ('own shipper', 'zone shipper', 'brokers'))}."
    )


def _change(result: Mapping[str, Any], name: str) -> str:
    """Return how the CPU time for a record changes from the smallest fleet that has such a process to the largest."""
    spent = [(run["pods"], value) for run in result["runs"] if (value := costs(result, run)[name]) is not None]
    (first, before), (_, after) = spent[0], spent[-1]
    return f"{name} {after / before:.2f} (from {_pods(first)} on)"


def _pods(count: int) -> str:
    return f"{count:,} pod{'s' if count > 1 else ''}"


def _table(result: Mapping[str, Any]) -> Iterator[str]:
    runs = result["runs"]
    heads = ["pods", *(f"{run['pods']:,}" for run in runs)]
    yield from markdown(heads, ([name, *cells] for name, cells in _cells(result, runs)), "---:")


def _cells(result: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Iterable[str]]]:
    """Iterate over the rows: a name, and a cell of each run."""
    spent, rounds = [costs(result, run) for run in runs], [_rounds(result, run) for run in runs]
    yield "processes, in all their lives", (f"{run['processes']:,}" for run in runs)
    yield "records accepted", (f"{run['kafka']['accepted']:,}" for run in runs)
    for name, where in (("Kafka", "kafka"), ("the engine", "engine")):
        yield f"**missing in {name}**", [f"**{run[where]['missing']:,}**" for run in runs]
        yield f"copies in {name}", [f"{run[where]['copies']:,}" for run in runs]
    yield "dropped by a full queue", (f"{run['dropped']:,}" for run in runs)
    yield "accepted and not noted, in killed processes", (f"{run['kafka']['beyond']:,}" for run in runs)
    yield "`verify` of all volumes", ("balances" if run["verified"] else "fails" for run in runs)
    for name, first, last in (
        ("without an event", None, "broker killed"), ("while a broker restarts", "broker killed", "zone lost"),
        ("after the zone is lost", "zone lost", "deploy begins"), ("during the deploy", "deploy begins", "deploy ends"),
    ):  # fmt: skip
        worsts = [worst(lag(result, run), run["events"][first] if first else 0, run["events"][last]) for run in runs]
        yield f"worst lag {name}, s", [f"{value:.1f}" for value in worsts]
    ended = [run["events"]["shipped"] - run["events"]["pods ended"] for run in runs]
    yield "all shipped after the end of the pods, s", [f"{value:.1f}" for value in ended]
    yield "records in a batch of a zone shipper", [f"{one[0]:.1f}" if one else "" for one in rounds]
    yield "seconds between batches of a zone shipper", [f"{one[1]:.1f}" if one else "" for one in rounds]
    for name in spent[0]:
        yield f"CPU for a record: {name}, µs", ["" if (cost := one[name]) is None else f"{cost:.0f}" for one in spent]
    stored = [(run["stored_bytes"], run["engine"]["disk_bytes"], run["engine"]["rows"]) for run in runs]
    yield "bytes of a record, in Kafka", [f"{kafka / rows:.0f}" for kafka, _, rows in stored]
    yield "bytes of a row, in the engine", [f"{engine / rows:.0f}" for _, engine, rows in stored]


def _rounds(result: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return how many records a zone's shipper sends together, and the seconds between two batches of it."""
    shippers = run["shippers"]
    if not shippers["batches"]:
        return None
    following = len({pod % ZONES for pod in range(run["sample"], run["pods"])} - {LOST})
    records = shippers["records"]["following"] / shippers["batches"]
    return records, result["seconds"] * following / shippers["batches"]


class Step(NamedTuple):
    """A fleet on paper: its figures as text, and each place with its load, what it takes, and how many are needed."""

    figures: Mapping[str, str]
    needed: Mapping[str, int]
    bottleneck: str
    behind: str
    """The place that is fullest but for that one."""


def carried(result: Mapping[str, Any], brokers_of: int = -1) -> list[Step]:
    """Carry the largest fleet to those on paper; a place that is fuller than half is widened for the next step.

    ``brokers_of``: the run whose brokers' cost is taken, since that depends on how large the batches are.
    """
    run, counts, steps = result["runs"][-1], {place.name: place.first for place in PLACES}, []
    spent = {**costs(result, run), "brokers": costs(result, result["runs"][brokers_of])["brokers"]}
    per_request = run["kafka"]["accepted"] / run["answered"]
    rate = result["requests"] / result["seconds"]
    for pods in ON_PAPER:
        measured, requests_s = result["measured"], pods * rate
        records_s = pods * rate * per_request
        cores = {name: (value or 0.0) / 1e6 * records_s for name, value in spent.items()}
        kept_s = records_s * REPLICAS * run["stored_bytes"] / run["engine"]["rows"]
        rows_bytes_s = records_s * run["engine"]["disk_bytes"] / run["engine"]["rows"]
        needs = dict(zip(
            (place.name for place in PLACES),
            (cores["consumer"], cores["engine"], cores["brokers"], kept_s / 1e6), strict=True,
        ))  # fmt: skip
        loads = {place.name: needs[place.name] / (counts[place.name] * place.takes) for place in PLACES}
        by_load = sorted(PLACES, key=lambda place: -loads[place.name])
        fullest = [
            f"{place.name}: {needs[place.name]:,.3g} of {counts[place.name] * place.takes:,.0f} {place.unit} "
            f"({loads[place.name]:.0%})"
            for place in by_load[:2]
        ]
        for place in PLACES:
            if loads[place.name] > FULL:
                counts[place.name] = math.ceil(needs[place.name] / place.takes / FULL)
        figures = {
            "requests a second": f"{pods * rate:,.0f}",
            "records a second": f"{records_s:,.0f}",
            "written to segments (`request_sizes.py`)": _mb(requests_s * measured["segment_bytes"]),
            "listeners (`request_sizes.py`), cores": f"{requests_s * measured['listener_cpu_s']:,.1f}",
            "an own shipper for each pod, cores": f"{cores['own shipper']:,.1f}",
            "a shipper for hundreds of pods, cores": f"{cores['zone shipper']:,.1f}",
            "connections to each broker, of own shippers": f"{pods:,}",
            "into Kafka by own shippers (`request_sizes.py`)": _mb(
                requests_s * measured["shipped"]["kafka"]["sent_bytes"]
            ),
            BROKERS: f"{cores['brokers']:,.1f}",
            "kept by Kafka in a day, three replicas": _tb(kept_s * DAY_S),
            "consumers, cores": f"{cores['consumer']:,.1f}",
            "engine, cores": f"{cores['engine']:,.1f}",
            "kept by the engine in a day": _tb(rows_bytes_s * DAY_S),
        }
        steps.append(Step(figures, dict(counts), *fullest))
    return steps


def _on_paper(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [[name, *(step.figures[name] for step in carried(result))] for name in carried(result)[0].figures]
    rows = [row for row in rows if row[0] != BROKERS]
    for at in (-1, -2):
        run = result["runs"][at]
        if (batch := _rounds(result, run)) is not None:
            steps = carried(result, at)
            head = f"**batches of {batch[0]:.1f} records, as with {_pods(run['pods'])}**"
            rows += [
                [head, *[""] * len(steps)],
                ["brokers, cores", *(step.figures[BROKERS] for step in steps)],
                ["bottleneck", *(f"**{step.bottleneck}**" for step in steps)],
                ["behind it", *(step.behind for step in steps)],
                *([place.more, *(f"{step.needed[place.name]:,}" for step in steps)] for place in PLACES),
            ]
    yield from markdown(["on paper", *(f"{pods:,} pods" for pods in ON_PAPER)], rows, "---:")


def _mb(bytes_s: float) -> str:
    return f"{bytes_s / 1e6:,.1f} MB/s"


def _tb(count: float) -> str:
    return f"{count / 1e12:,.2f} TB"


def plot(part: Part, path: Path) -> None:
    """Draw lag and cost."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    result, runs = part.result, part.result["runs"]
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 8), constrained_layout=True)
    place = part.machine
    figure.suptitle(f"Fleet simulation, {part.made[:10]}, {place['cpu']}, {place['cores']} cores")
    for run in runs:
        above.plot(*zip(*lag(result, run), strict=True), label=_pods(run["pods"]))
    above.margins(y=0.25)
    for name, at_s in runs[-1]["events"].items():
        above.axvline(at_s, color="grey", linewidth=0.6)
        above.annotate(name, (at_s, 0.98), xycoords=("data", "axes fraction"), rotation=90, va="top", fontsize=7)
    above.set(xlabel="s", ylabel="accepted and not in Kafka, as seconds of load", ylim=(0, None))
    above.legend()
    spent = [costs(result, run) for run in runs]
    for name in spent[0]:
        points = [(run["pods"], one[name]) for run, one in zip(runs, spent, strict=True) if one[name] is not None]
        below.plot(*zip(*points, strict=True), marker="o", label=name)
    below.set(xlabel="pods", ylabel="CPU time for a record, µs", xscale="log", yscale="log")
    below.legend()
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    write(newest())
