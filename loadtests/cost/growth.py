"""How the cost of logging grows: with processes, with the size of a record, with concurrent streams, with threads.

    python -m loadtests.cost.growth [--quick] [--json PATH]

At each place the same work is done with and without logging, by turns, in slices of the same length; CPU time of the
threads that do it is read around each slice, so what other processes do meanwhile counts little. The places take turns
as well: a round goes through all of them, the next one back. What logging adds at the last place is divided by what it
adds at the first within each round, and so is the work without logging: that ratio is the control.

The listener writes what waits between slices, so no record is refused: it is checked that all of them arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, Final

from inference_logging.prove.bench.child import places
from inference_logging.prove.bench.text import bytes_text, time_text
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests import harness
from loadtests.cost.growth_quantities import PROCESSES, RECORD_BYTES, STREAMS, THREADS, Place, Quantity, Sample

QUANTITIES: Final = (PROCESSES, RECORD_BYTES, STREAMS, THREADS)
_ROUNDS: Final = 5
_QUICK_ROUNDS: Final = 2

Series = dict[str, Any]
"""What a quantity's growth does to the cost: the points, and what they prove as a ``sentence``."""


def growth(quick: bool, show: Callable[[Series], object]) -> list[Series]:
    """Measure each quantity, ``show`` it as soon as it is known, and return all.

    Raises ``RuntimeError`` if a record that was accepted did not arrive, or one was refused.
    """
    found = []
    for quantity in QUANTITIES:
        xs = quantity.quick_places if quick else quantity.places
        samples: dict[int, list[Sample]] = {x: [] for x in xs}
        for number in range(_QUICK_ROUNDS if quick else _ROUNDS):
            for x in xs if number % 2 == 0 else reversed(xs):
                with places() as (segments, memory):
                    samples[x].append(quantity.measure(Place(segments, memory), x, quick))
        found.append(series_of(quantity, samples))
        show(found[-1])
    return found


def series_of(quantity: Quantity, samples: dict[int, list[Sample]]) -> Series:
    """Put the samples of all rounds together."""
    points = [
        {
            "x": x,
            **bootstrap([sample.logged_ns for sample in of_place]).as_json(),
            "control": bootstrap([sample.control_ns for sample in of_place]).as_json(),
        }
        for x, of_place in samples.items()
    ]
    ends = (min(samples), samples[min(samples)]), (max(samples), samples[max(samples)])
    every = [sample for of_place in samples.values() for sample in of_place]
    accepted, arrived = sum(sample.accepted for sample in every), sum(sample.arrived for sample in every)
    sentence, grown = _sentence(quantity, *ends)
    books = f"{accepted:,} accepted records"
    books = f"All {books} arrived." if arrived == accepted else f"Of {books} {arrived:,} arrived."
    return {
        "name": quantity.noun,
        "points": points,
        "growth": grown.as_json() if grown else None,
        "sentence": f"{sentence} {books}",
        "accepted": accepted,
        "arrived": arrived,
    }


End = tuple[int, list[Sample]]
"""The first or the last place."""


def _sentence(quantity: Quantity, first: End, last: End) -> tuple[str, Interval | None]:
    """Say what the figures prove; also return what logging adds at the last place ÷ at the first, if that is known."""
    above, below = ([sample.added_ns for sample in samples] for _, samples in (last, first))
    last_ns, first_ns = median(above), median(below)
    begin, end = (bytes_text(x) if quantity.unit == 1024 else f"{x:,}" for x in (first[0], last[0]))
    way = f"From {begin} to {end} {quantity.noun}, what logging adds to {quantity.work} goes"
    way += f" from {time_text(first_ns)} to {time_text(last_ns)}"
    if min(*above, *below) <= 0:
        return f"{way}: not measured, since in some round the work with logging took no longer than without.", None
    grown = ratio(above, below)
    control = ratio([sample.control_ns for sample in last[1]], [sample.control_ns for sample in first[1]])
    per_unit = (last_ns - first_ns) / (last[0] - first[0]) * quantity.unit
    slope = (
        f", {time_text(per_unit)} for each further {quantity.unit_title}" if grown.low > max(1, control.high) else ""
    )
    return (
        f"{way} of CPU time, {_ratio(grown)}; the same work without logging {_ratio(control)}. While "
        f"{quantity.x_title} grows {_times(last[0] / first[0])}, {_verdict(grown, control)}{slope}."
    ), grown


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


def main() -> None:
    """Measure all quantities; each sentence is printed as soon as it is known."""
    options = harness.parser(__doc__).parse_args()
    series = growth(options.quick, lambda one: print(one["sentence"], flush=True))
    harness.write(options.json, {"command": "make bench-growth", "quick": options.quick, "growth": series})


if __name__ == "__main__":
    main()
