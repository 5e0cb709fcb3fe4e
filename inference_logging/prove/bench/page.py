"""The page of `inference-logging bench`: what every way of logging costs here, as one file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from inference_logging.prove.bench.figures import (
    FORMS,
    NOTHING,
    bytes_text,
    control_differences,
    estimate_text,
    resolution,
    share_text,
    threads_text,
)
from inference_logging.prove.bench.plots import LOOP_NAMES, Cells, all_plots
from inference_logging.prove.bench.result import (
    NOT_MEASURED,
    NOT_REACHED,
    REACHED,
    Goal,
    Machine,
    Result,
)
from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, folded, headline, listing, paragraph, table_of
from inference_logging.read.stats.summary import count_text

_WORDS: Final = {
    "latency-open": (
        "Calls are due at a constant rate, and a call's latency counts from the moment at which it was due: a stall "
        "counts for every call that had to wait behind it. This is what a server's requests feel. A point is a "
        "quantile, the grey one the longest call."
    ),
    "latency-closed": (
        "Each thread calls again as soon as its call has returned. This is what a call costs where nothing waits for "
        "it, and it hides stalls: while one lasts, no call is made that could suffer from it."
    ),
    "throughput": (
        "Records in the file, divided by the time from the first call until the last of them was there. So a queue in "
        "front of a slow writer does not look quick. The bars at the points are intervals of 95 %."
    ),
    "loss": (
        "Lost: the call took the record, the peer said that it was done, and the record is not in the file. Late: "
        "the peer was not done within the limit, so the rest might have come. Refused: the call said no, or the peer "
        "itself counts the record as dropped. What happens under too much load is a library's choice; this is what "
        "each chose. Calls that write nothing are not shown."
    ),
    "memory": (
        "The highest resident memory of the process, above what it had before the library was opened. A queue without "
        "a bound trades memory for never refusing."
    ),
    "cpu": (
        "CPU time of the process for each accepted record until the last one was written, without our native threads, "
        "which never hold the interpreter's lock. What stands here is taken away from the application."
    ),
    "calls": (
        "One thread, in batches, the loop included, with room in every queue: what the line of code costs where "
        "nothing else goes on. Filtered out is a call at a level that its logger does not take, as most debug lines "
        "of a server are; a way of logging without levels has none."
    ),
}


def write(path: Path, result: Result) -> None:
    """Write the page to ``path``. Raises ``OSError`` if it can't be written."""
    pages.write(path, page(result))


def page(result: Result) -> str:
    """Return the page."""
    intro = [
        paragraph(_place(result["machine"], result["command"], result["made"])),
        _warning(result["quick"]),
        headline(_headline(result)),
    ]
    sections = [
        Section("Goals", [_goals(result["goals"])]),
        Section("How it was measured", list(_method(result))),
        *(Section(plot.title, [paragraph(_WORDS.get(plot.name, "")), figure(plot)]) for plot in all_plots(result)),
        Section("All figures", list(_figures(result))),
        Section("What was compared", list(_peers(result))),
    ]
    return pages.document("What logging costs on this machine", intro, sections)


def _place(machine: Machine, command: str, made: str) -> str:
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB; Linux {machine['kernel']}; "
        f"Python {machine['python']}; files on {machine['files_on'] or 'an unknown file system'}. "
        f"{made[:19].replace('T', ' ')} UTC, by {command}"
    )


def _warning(quick: bool) -> str:
    words = "A quick run: it shows that the benchmark works, the figures mean nothing."
    return paragraph(words, "warning") if quick else ""


def _headline(result: Result) -> Iterator[tuple[str, str]]:
    goals = result["goals"]
    if goals:
        yield "Goals reached", f"{sum(goal['verdict'] == REACHED for goal in goals)} of {len(goals)}"
    present = [peer for peer in result["peers"] if peer["missing"] is None]
    yield "Ways of logging", f"{len(present)} of {len(result['peers'])}"
    yield "Cells × rounds", f"{len(result['cells'])} × {result['rounds']}"
    before, after = result["machine"]["load_before"], result["machine"]["load_after"]
    yield "Load before, after", f"{before[0]:.2f}, {after[0]:.2f}"


def _goals(goals: Sequence[Goal]) -> str:
    """Return the goals as a table, what is not reached first."""
    if not goals:
        return ""
    order = {NOT_REACHED: 0, REACHED: 2}
    rows = [
        (goal["name"], goal["goal"], _goal_value(goal), goal["verdict"])
        for goal in sorted(goals, key=lambda goal: order.get(goal["verdict"].partition(":")[0], 1))
    ]
    missed = sum(goal["verdict"].startswith(NOT_REACHED) for goal in goals)
    unknown = sum(goal["verdict"].startswith(NOT_MEASURED) for goal in goals)
    note = f"{missed} not reached, {unknown} not measured. A goal is judged by its value, not by the interval's end."
    return table_of(Table("Goals", ("ratio within this run", "goal", "found", "verdict"), rows, note), "goals")


def _goal_value(goal: Goal) -> str:
    if goal["value"] is None or goal["low"] is None or goal["high"] is None:
        return NOTHING
    return estimate_text({"value": goal["value"], "low": goal["low"], "high": goal["high"]}, "{:.4g}".format)


def _method(result: Result) -> Iterator[str]:
    rates = result["open_rate_per_s"]
    listed = ", ".join(f"{count_text(rate)} with {threads_text(int(count))}" for count, rate in rates.items())
    yield paragraph(
        "A cell is one way of logging with one number of threads, one kind of loop and one size of record. Each cell "
        "runs in a process of its own, so that no library's threads or memory are in another's figures. All cells run "
        f"once in a round, in a shuffled order, so that a slow phase of the machine falls on none of them alone. There "
        f"{'were' if result['rounds'] > 1 else 'was'} {result['rounds']} round{'s' if result['rounds'] > 1 else ''}; a "
        f"cell lasts {result['seconds_per_cell']:g} s."
    )
    yield paragraph(f"In the open loop, calls per second of all threads together: {listed}." if listed else "")
    yield paragraph(
        "All write the same record. Each library is configured as its own documentation recommends for production; the "
        "settings stand at the end of the page. The empty call is the control: it shows what the loop, the clock and "
        "the machine take, and that is in every other figure too."
    )
    yield paragraph(_resolution_text(result))


def _resolution_text(result: Result) -> str:
    known = {name: resolution(result["cells"], name) for name in ("p50_ns", "p999_ns", "records_per_s")}
    listed = ", ".join(f"{FORMS[name][0]} to ±{share_text(half)}" for name, half in known.items() if half is not None)
    if not listed:
        return ""
    if result["rounds"] == 1:
        return "One round has no intervals, so nobody knows what its noise resolves."
    differences = sorted(control_differences(result["cells"], "p50_ns"))
    noise = (
        " The empty call is measured twice in every round, as two peers: their p50 differ by "
        f"{share_text(median(differences))} at the median over cells and rounds, and by {share_text(differences[-1])} "
        "at most."
        if differences
        else ""
    )
    return (
        "A figure is the median over the rounds, with its bootstrap interval of 95 %. What the noise of this run "
        f"resolves, at the median over all cells: {listed}.{noise} Two figures whose intervals overlap are the same "
        "as far as this run knows."
    )


def _figures(result: Result) -> Iterator[str]:
    """Iterate over the tables, closed at first: one block for each kind of loop and size of record."""
    cells = Cells(result)
    for loop in cells.loops:
        for size in cells.sizes:
            tables = "".join(_cells_table(cells, loop, size, threads) for threads in cells.threads)
            yield folded(f"{LOOP_NAMES[loop]}, records of {bytes_text(size)}", tables)
    if cells.all:
        yield paragraph(
            "Below each figure stands its interval of 95 %. Accepted, refused and arrived are of all rounds."
        )


def _cells_table(cells: Cells, loop: str, size: int, threads: int) -> str:
    heads = (threads_text(threads), *(head for head, _ in FORMS.values()), "accepted", "refused", "arrived")
    rows, notes = [], []
    for peer in cells.peers:
        cell = cells.cell(peer, threads, loop, size)
        if cell is None:
            continue
        estimates = (estimate_text(cell["figures"].get(name), form) for name, (_, form) in FORMS.items())
        counts = (count_text(cell["accepted"]), count_text(cell["refused"]), count_text(cell["arrived"]))
        rows.append((cells.title(peer), *estimates, *counts))
        late = "did not keep up with the rate" if cell["kept_up"] is False else None
        undrained = "was not done within the limit" if not cell["drained"] else None
        notes += [f"{cells.title(peer)}: {note}." for note in (late, undrained, cell["problem"]) if note]
    ours = cells.ours(cells.peers)
    return (
        table_of(Table(f"{LOOP_NAMES[loop]}, {bytes_text(size)}, {heads[0]}", heads, rows, " ".join(notes)), ours=ours)
        if rows
        else ""
    )


def _peers(result: Result) -> Iterator[str]:
    missing = [(peer["title"], peer["missing"]) for peer in result["peers"] if peer["missing"] is not None]
    if missing:
        rows = [(title, str(reason)) for title, reason in missing]
        yield table_of(Table("Not measured", ("not measured here", "reason"), rows), "goals")
    for peer in result["peers"]:
        if peer["missing"] is None:
            library = f" ({peer['library']} {peer['version']})" if peer["library"] else ""
            yield folded(peer["title"] + library, listing(peer["settings"]))
