"""How the cost of logging grows: with processes, with the size of a record, with concurrent streams, with threads.

    python -m loadtests.cost.growth [--quick] [--json PATH]

At each place the same work is done with and without logging, by turns, in slices of the same length; CPU time of the
threads that do it is read around each slice, so what other processes do meanwhile counts little. The places take turns
as well: a round goes through all of them, the next one back. What logging adds at the last place is divided by what it
adds at the first within each round, and so is the work without logging: that ratio is the control.

The listener writes what waits between slices, so no record is refused: it is checked that all of them arrived.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Final

from inference_logging.prove.bench.figures import bytes_text, time_text
from inference_logging.prove.bench.machine import file_system, load, machine
from inference_logging.prove.bench.result import SCHEMA, Estimate
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests.cost.growth_calls import PROCESSES, RECORD_BYTES, THREADS
from loadtests.cost.growth_quantity import Place, Quantity, Sample
from loadtests.cost.growth_series import Point, Series
from loadtests.cost.growth_streams import STREAMS

QUANTITIES: Final = (PROCESSES, RECORD_BYTES, STREAMS, THREADS)
_ROUNDS: Final = 5
_QUICK_ROUNDS: Final = 2

Show = Callable[[Series], object]


def growth(out: Path, quick: bool, show: Show = lambda _series: None) -> list[Series]:
    """Measure each quantity, ``show`` it as soon as it is known, and return all.

    Segments are written below ``out`` and removed. Raises ``RuntimeError`` if a record that was accepted did not
    arrive, or one was refused.
    """
    found = []
    for quantity in QUANTITIES:
        found.append(series_of(quantity, _measure(quantity, out, quick)))
        show(found[-1])
    return found


def _measure(quantity: Quantity, out: Path, quick: bool) -> dict[int, list[Sample]]:
    places = quantity.quick_places if quick else quantity.places
    samples: dict[int, list[Sample]] = {x: [] for x in places}
    for number in range(_QUICK_ROUNDS if quick else _ROUNDS):
        for x in places if number % 2 == 0 else reversed(places):
            with _place(out) as place:
                samples[x].append(quantity.measure(place, x, quick))
    return samples


@contextmanager
def _place(out: Path) -> Iterator[Place]:
    """Make a directory for segments and one for queues, and remove both."""
    memory = Path("/dev/shm")
    out.mkdir(parents=True, exist_ok=True)
    segments = Path(tempfile.mkdtemp(prefix="growth-", dir=out))
    queues = Path(tempfile.mkdtemp(prefix="inference_logging-growth-", dir=memory if memory.is_dir() else out))
    try:
        yield Place(segments, queues)
    finally:
        shutil.rmtree(segments, ignore_errors=True)
        shutil.rmtree(queues, ignore_errors=True)


def series_of(quantity: Quantity, samples: dict[int, list[Sample]]) -> Series:
    """Put the samples of all rounds together."""
    points: list[Point] = []
    for x, of_place in samples.items():
        logged = _estimate(bootstrap([sample.logged_ns for sample in of_place]))
        unlogged = _estimate(bootstrap([sample.control_ns for sample in of_place]))
        points.append({"x": x, **logged, "control": unlogged})
    first, last = next(iter(samples.values())), list(samples.values())[-1]
    added = ([sample.added_ns for sample in last], [sample.added_ns for sample in first])
    grown = ratio(*added) if min(map(min, added)) > 0 else None
    control = ratio([sample.control_ns for sample in last], [sample.control_ns for sample in first])
    accepted = sum(sample.accepted for of_place in samples.values() for sample in of_place)
    arrived = sum(sample.arrived for of_place in samples.values() for sample in of_place)
    sentence = _sentence(quantity, points, median(added[1]), median(added[0]), grown, control)
    return {
        "name": quantity.name,
        "title": quantity.title,
        "x_title": quantity.x_title,
        "y_title": quantity.y_title,
        "words": quantity.words,
        "control_title": quantity.control_title,
        "points": points,
        "rounds": len(first),
        "growth": _estimate(grown) if grown else None,
        "sentence": f"{sentence} All {accepted:,} accepted records arrived."
        if arrived == accepted
        else f"{sentence} Of {accepted:,} accepted records {arrived:,} arrived.",
        "accepted": accepted,
        "arrived": arrived,
    }


def _sentence(
    quantity: Quantity,
    points: Sequence[Point],
    first_ns: float,
    last_ns: float,
    grown: Interval | None,
    control: Interval,
) -> str:
    """Say what the figures prove."""
    first, last = points[0]["x"], points[-1]["x"]
    begin, end = (bytes_text(x) if quantity.is_bytes else f"{x:,}" for x in (first, last))
    way = f"From {begin} to {end} {quantity.noun}, what logging adds to {quantity.work} goes"
    if grown is None:
        return (
            f"{way} from {time_text(first_ns)} to {time_text(last_ns)}: not measured, since in some round the work "
            "with logging took no longer than without."
        )
    per_unit = (last_ns - first_ns) / (last - first) * quantity.unit
    slope = (
        f", {time_text(per_unit)} for each further {quantity.unit_title}" if grown.low > max(1, control.high) else ""
    )
    return (
        f"{way} from {time_text(first_ns)} to {time_text(last_ns)} of CPU time, {_ratio(grown)}; the same work without "
        f"logging {_ratio(control)}. While {quantity.x_title} grows {_times(last / first)}, {_verdict(grown, control)}"
        f"{slope}."
    )


def _verdict(grown: Interval, control: Interval) -> str:
    if grown.high < 1:
        return "it falls"
    if grown.low <= 1:
        return "it does not grow, as far as this run knows"
    if grown.low <= control.high:
        return "it grows no more than the same work without logging, as far as this run knows"
    return f"it grows {_times(grown.value)}"


def _ratio(found: Interval) -> str:
    return f"× {found.value:.3g} ({found.low:.3g} … {found.high:.3g})"


def _times(factor: float) -> str:
    return f"{factor:,.3g}-fold" if factor < 1000 else f"{factor:,.0f}-fold"


def _estimate(found: Interval) -> Estimate:
    return {"value": found.value, "low": found.low, "high": found.high}


def _show(series: Series) -> None:
    print(f"{series['title']}: {series['sentence']}", flush=True)


def main() -> None:
    """Measure all quantities; each sentence is printed as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short rounds at few places: shows that it works")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    load_before = load()
    with tempfile.TemporaryDirectory() as scratch:
        series = growth(
            Path(scratch), options.quick, lambda one: print(f"{one['title']}: {one['sentence']}", flush=True)
        )
        found = {
            "schema": SCHEMA,
            "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": "make bench-growth",
            "quick": options.quick,
            "machine": machine(load_before, file_system(Path(scratch))),
            "growth": series,
        }
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
