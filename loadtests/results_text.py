"""The figures of the pages as text: a table of rows with figures in them, the ways of logging, growth, goals.

A row is a template. `{bench > emit > ours, batch-timed}` stands for the figure of the part `bench` whose section is
`emit` and whose name begins so; `{turns > uvicorn, GET > control}` for the figure `control` of a row of the turns, and
`{parsl > figures > ours ÷ off}` for one of a result without sections. Each is written with its unit and its interval or
spread. A row of a part or section that was not measured is left out; a name that its section does not have is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from inference_logging.prove.bench.text import FORMS, share_text
from loadtests.results_rows import ROWS, TABLES, Row, Table

THINNEST: Final = "thinnest wrapper"


class Part(NamedTuple):
    """The result of one command, and where it was found."""

    name: str
    file: str
    made: str
    machine: Mapping[str, Any]
    command: str
    result: Mapping[str, Any]


class NotMeasuredError(Exception):
    """A part or section is not there, since nobody ran it."""


def block(parts: Mapping[str, Part]) -> str:
    """Return what stands between the marks."""
    tables = (_table(table, parts[table.part]) for table in TABLES if table.part in parts)
    sections = (_sources(parts), _rows(parts), _turns(parts), *tables, _peers(parts), _growth(parts), _goals(parts))
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines)


def cost(parts: Mapping[str, Part]) -> str:
    """Return the table of the README: what each arm adds to a request, and how many goals are reached."""
    if "turns" not in parts:
        raise NotMeasuredError("turns")
    part, judged = parts["turns"], _judged(parts)
    met = f"{len(judged[0])} of our {sum(map(len, judged))} performance targets"
    where = f"Measured on {_place(part, ':')} (`make bench-turns`)."
    said = f"We meet {met}; [these](docs/figures.md) we don't, or could not measure."
    return "\n".join([*_in_words(part), *_arms(part, _times), "", where, said])


_SAID: Final = {
    "ours": "this package",
    "uvicorn's access log": "uvicorn's access log",
    "opentelemetry-instrumentation-asgi": "OpenTelemetry",
}
"""The arms that the sentence is about."""
_KINDS: Final = {"uvicorn, GET of a few bytes": "a GET", "uvicorn, stream of 64": "a stream of 64 chunks"}


def _in_words(part: Part) -> Iterator[str]:
    """Iterate over the lines that say the table's gist, where all that they compare was measured."""
    added = {(row["workload"], row["arm"]): row["added_us"]["value"] for row in part.result["rows"]}
    if all((kind, arm) in added for kind in _KINDS for arm in _SAID):
        for kind, name in _KINDS.items():
            times = ", ".join(f"{what} {added[kind, arm]:,.0f} µs" for arm, what in _SAID.items())
            yield f"* Added to {name}: {times}."
        yield ""


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> Iterator[str]:
    """Iterate over the lines of a table."""
    yield from map(_line, (heads, ["---", *[align] * (len(heads) - 1)], *rows))


def _line(cells: Sequence[str]) -> str:
    return (
        f"|{'|'.join(cells)}|" if cells[0] == "---" else "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"
    )


def _place(part: Part, colon: str = ",") -> str:
    """Return day and machine, and that others used its processors when the part began, if its load averages say so."""
    load, cores = part.result.get("machine", {}).get("load average", "0"), part.machine["cores"]
    beside = ", beside other work" if max(map(float, load.split())) > cores else ""
    return f"{part.made[:10]}{colon} {part.machine['cpu']}, {cores} cores{beside}"


def _arms(part: Part, write: Callable[[Mapping[str, Any]], str]) -> Iterator[str]:
    """Iterate over the lines of a table with a row for each arm and a column for each kind of request."""
    rows = part.result["rows"]
    workloads = dict.fromkeys(row["workload"].removeprefix("uvicorn, ") for row in rows)
    arms = dict.fromkeys(row["arm"] for row in rows)
    yield from markdown(["", *workloads], ([arm, *(write(row) for row in rows if row["arm"] == arm)] for arm in arms))


def _times(row: Mapping[str, Any]) -> str:
    """Return what an arm adds, and that as a multiple of what the thinnest wrapper adds, where this is known."""
    if row["arm"] == THINNEST or not row["times_thinnest"]:
        return _added(row)
    return f"{_added(row)}: {_tenths(row['times_thinnest'], '×')}"


def _added(row: Mapping[str, Any]) -> str:
    return _tenths(row["added_us"], "µs")


def _tenths(found: Mapping[str, float], unit: str) -> str:
    """Return a figure of a column, in which all have a digit behind the point, but those from 100 on."""
    value, low, high = (
        f"{found[which]:,.0f}" if abs(found[which]) >= 100 else f"{found[which]:.1f}".replace("-0.0", "0.0")
        for which in ("value", "low", "high")
    )
    return f"{value} {unit} ({low} … {high})"


def _turns(parts: Mapping[str, Part]) -> Iterator[str]:
    if "turns" in parts:
        yield "By turns in one uvicorn process, CPU time of the loop that each adds to a request (`make bench-turns`):"
        yield ""
        yield from _arms(parts["turns"], _added)


def comparison(parts: Mapping[str, Part]) -> str:
    """Return what a record costs by each way of logging, of the table in ``block``: four columns of it."""
    rows = [row.split("|") for row in _peers(parts) if row.startswith("|")]
    return "\n".join("|".join(["", *(cells[at] for at in _COMPARED), ""]) for cells in rows)


_COMPARED: Final = (1, 2, 3, 5, 8)
"""Cells of a row of the peers: the way of logging, two latencies, CPU, and what arrived of the calls."""


def _sources(parts: Mapping[str, Part]) -> Iterator[str]:
    yield "Each figure has its 95 % interval, or its lowest and highest round. Measured:"
    yield ""
    names: dict[str, list[str]] = {}
    for part in parts.values():
        where = f"{_place(part)}, Python {part.machine['python']}: `loadtests/results/{part.file}.json`"
        names.setdefault(where, []).append(f"`{part.name}`")
    yield from (f"- {', '.join(made)} on {where}" for where, made in names.items())


def _rows(parts: Mapping[str, Part]) -> Iterator[str]:
    rows = [row for given in ROWS if (row := _filled(given, parts)) is not None]
    own = (row for part in parts.values() for row in part.result.get("rows", ()))
    rows += [Row(**row) for row in own if set(row) == set(Row._fields)]
    if rows:
        yield from markdown(("what", "ours", "beside it"), rows)


def _filled(row: Row, parts: Mapping[str, Part]) -> Row | None:
    """Return a row with its figures, None if they were not measured; raises ``LookupError`` for an unknown name."""
    try:
        return Row(*(_PLACE.sub(lambda match: _figure(match[1], parts), text) for text in row))
    except NotMeasuredError:
        return None


_PLACE: Final = re.compile(r"\{([^}]+)\}")


def _figure(path: str, parts: Mapping[str, Part]) -> str:
    name, section, figure = path.split(" > ")
    if name not in parts:
        raise NotMeasuredError(name)
    result = parts[name].result
    if "sections" in result:
        return _of_section(parts[name], section, figure)
    if "figures" in result:
        return interval_text(result["figures"][figure], "")
    rows = [row for row in result["rows"] if row["name"].startswith(section)]
    if not rows:
        raise NotMeasuredError(section)
    return interval_text(rows[0][figure], _UNITS.get(figure, ""))


_UNITS: Final = {"added_us": "µs", "times_thinnest": "×"}


def _sections(part: Part) -> list[Mapping[str, Any]]:
    """Return the sections of a result; where they are named, each has its name, else the begin of its title is one."""
    sections = part.result.get("sections", ())
    named = sections.items() if isinstance(sections, Mapping) else ((one["title"], one) for one in sections)
    return [{"name": name, **section} for name, section in named]


def _of_section(part: Part, section: str, figure: str) -> str:
    """Return a figure of a section; raises ``LookupError`` unless one figure has this name or begins so."""
    figures = [one["figures"] for one in _sections(part) if one["name"].startswith(section)]
    if len(figures) != 1:
        raise NotMeasuredError(section)
    names = [one["name"] for one in figures[0]]
    exactly = figure in names
    found = [one for one in figures[0] if (one["name"] == figure if exactly else one["name"].startswith(figure))]
    if len(found) != 1:
        raise LookupError(f"{{{part.name} > {section} > {figure}}}: {len(found)} figures of this name in {names}")
    return _of_rounds(found[0])


def _of_rounds(figure: Mapping[str, Any]) -> str:
    return interval_text({**figure, "value": figure["median"]}, figure["unit"])


def interval_text(found: Mapping[str, float], unit: str) -> str:
    """Return a figure with its unit and interval."""
    low, high = found["low"], found["high"]
    interval = f" ({number(low)} … {number(high)})" if low < high else ""
    shown = {"": "", "1/s": "/s"}.get(unit, f" {unit}")
    return f"{number(found['value'])}{shown}{interval}"


def number(value: float) -> str:
    """Return three digits that say something, and no fewer of a larger number."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}" if 0.9 <= value < 1.1 else f"{value:.3g}"


def _table(table: Table, part: Part) -> Iterator[str]:
    names = {one["name"] for section in _sections(part) for one in section["figures"]}
    rows = []
    for mode, what in table.rows:
        found = [(section, f"{figure}: {mode} ÷ none") for section, figure, _ in table.columns]
        if all(name in names for _, name in found):
            rows.append([what, *(_of_section(part, section, name) for section, name in found)])
    yield f"{table.about}:"
    yield ""
    yield from markdown(["", *(head for _, _, head in table.columns)], rows)


_PEER_COLUMNS: Final = (
    ("p50_ns", "closed", False, "a call, p50"),
    ("p999_ns", "open", True, "p99.9 from when it was due"),
    ("records_per_s", "closed", False, "records/s"),
    ("interpreter_cpu_ns", "closed", False, "interpreter CPU per record"),
    ("peak_bytes", "closed", True, "peak memory"),
)

_SHARES: Final = (
    ("arrived_ratio", ("open", "closed"), "arrived ÷ accepted"),
    ("kept_ratio", ("open",), "arrived ÷ calls, open loop"),
    ("kept_ratio", ("closed",), "the same, closed loop"),
)


def _peers(parts: Mapping[str, Part]) -> Iterator[str]:
    if "peers" not in parts:
        return
    result = parts["peers"].result
    few, many = (choose(cell["threads"] for cell in result["cells"]) for choose in (min, max))
    size = min(cell["record_bytes"] for cell in result["cells"])
    cells = {
        (cell["peer"], cell["loop"], cell["threads"]): cell for cell in result["cells"] if cell["record_bytes"] == size
    }
    heads = (f"{head}, {many if is_many else few} thr." for _, _, is_many, head in _PEER_COLUMNS)
    file = f"loadtests/results/{parts['peers'].file}.json"
    yield f"`inference-logging bench`, records of {size} B (every figure with its interval: `{file}`):"
    yield ""
    rows = (list(_peer_row(peer, cells, (few, many), result["cells"])) for peer in result["peers"])
    yield from markdown(["way of logging", *heads, *(head for _, _, head in _SHARES)], rows)
    yield ""
    yield "The shares are those of the worst cell. In the closed loop, calls follow without a pause, also from 64"
    yield "threads with 4 KiB: no file takes all that ours accepts, and once its queue is full, a call returns false."


def _peer_row(
    peer: Mapping[str, Any], cells: Mapping[Any, Any], threads: tuple[int, int], every: Sequence[Any]
) -> Iterator[str]:
    yield peer["title"]
    if peer["missing"] is not None:
        yield f"not measured: {peer['missing']}"
        yield from [""] * (len(_PEER_COLUMNS) + len(_SHARES) - 1)
        return
    for figure, loop, is_many, _ in _PEER_COLUMNS:
        cell = cells.get((peer["name"], loop, threads[is_many]))
        found = cell["figures"].get(figure) if cell else None
        yield FORMS[figure][1](found["value"]) if found else "–"
    for figure, loops, _ in _SHARES:
        own = [cell for cell in every if cell["peer"] == peer["name"] and cell["loop"] in loops]
        ratios = [found["value"] for cell in own if (found := cell["figures"].get(figure))]
        yield share_text(min(ratios)) if ratios and peer["writes"] else "–"


def _growth(parts: Mapping[str, Part]) -> Iterator[str]:
    if "growth" in parts:
        yield "How the cost grows (`make bench-growth`):"
        yield ""
        yield from (f"- {series['sentence']}" for series in parts["growth"].result["growth"])


class Goal(NamedTuple):
    """A goal of a part, what was found, and what became of it."""

    name: str
    goal: str
    found: str
    verdict: str

    def said(self) -> str:
        """Return the goal as a part of a sentence; nothing if it is in the name."""
        return f", goal {self.goal}" if self.goal else ""


def goals_of(part: Part) -> Iterator[Goal]:
    """Iterate over the goals of a part, whichever form its result has."""
    for section in _sections(part):
        for figure in section["figures"]:
            if goal := figure["goal"]:
                bound = f"{ {'<=': '≤', '>=': '≥'}[goal['sense']] } {goal['bound']:g}"
                name, verdict = section["title"].partition(":")[0], "reached" if figure["reached"] else "not reached"
                yield Goal(f"{name}: {figure['name']}", bound, _of_rounds(figure), verdict)
    for row in part.result.get("rows", ()):
        if row.get("verdict", "").startswith("goal "):
            goal, _, verdict = row["verdict"].removeprefix("goal ").partition(": ")
            of_turns = "times_thinnest" if "thinnest" in goal else "unlogged_to_logged"
            figure = "added_us" if goal.endswith("µs") else of_turns
            found = interval_text(row[figure], _UNITS.get(figure, "")) if row[figure] else ""
            yield Goal(row["name"], goal, found, verdict)
    for goal in part.result.get("goals", ()):
        if "because" in goal:  # Parsl's
            yield Goal(goal["goal"], "", goal["because"], "reached" if goal["reached"] else "not reached")
        else:
            value = "" if goal["value"] is None else number(goal["value"])
            yield Goal(goal["name"], goal["goal"], value, goal["verdict"])


def _judged(parts: Mapping[str, Part]) -> list[list[Goal]]:
    """Return the goals that are reached, that are not, and that were not measured."""
    every = [goal for part in parts.values() for goal in goals_of(part)]
    words = ("reached", "not reached", "not measured")
    return [[goal for goal in every if goal.verdict.startswith(word)] for word in words]


def _goals(parts: Mapping[str, Part]) -> Iterator[str]:
    reached, missed, unknown = _judged(parts)
    if reached or missed or unknown:
        yield f"{len(reached)} of {len(reached) + len(missed) + len(unknown)} goals are reached. Missed:"
        yield ""
        yield from (f"- {goal.name}: {goal.found}{goal.said()}{goal.verdict[len('not reached') :]}" for goal in missed)
    if unknown:
        yield "\nNot measured:\n"
        yield from (f"- {goal.name}{goal.said()}: {goal.verdict.partition(': ')[2]}" for goal in unknown)
