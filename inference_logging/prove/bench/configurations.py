"""The cost of a change of the configuration: what requests cost under the new file, against the old one.

Both files are read by themselves, without the environment, as a review sees them. Where a file says that records go
somewhere else than to a directory of this machine, or names a directory, a scratch directory takes its place; what the
measurement cannot show is replaced and named.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_logging.prove.bench.child import child, places
from inference_logging.prove.bench.configurations_round import (
    CHUNKS,
    CONTROL,
    GET,
    KINDS,
    LOGGED,
    NEW,
    NONE,
    OLD,
    POST,
    STREAM,
    Batch,
)
from inference_logging.prove.bench.machine import machine
from inference_logging.prove.bench.text import number_text
from inference_logging.read.stats.interval import Interval, bootstrap, trimmed_mean
from inference_logging.record.config import Config, FileConfig

REQUEST_CPU: Final = "request path: CPU per request"
CHUNK_CPU: Final = "request path: CPU per chunk"
LISTENER_CPU: Final = "listener: CPU per request"
RECORD_CPU: Final = "listener: CPU per record"
BYTES: Final = "bytes per request"
RECORDS: Final = "records per request"
UNITS: Final = {
    REQUEST_CPU: "µs", CHUNK_CPU: "µs", LISTENER_CPU: "µs", RECORD_CPU: "µs", BYTES: "B", RECORDS: "",
}  # fmt: skip
ROUND: Final = "inference_logging.prove.bench.configurations_round"
_ROUND_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True)
class Figure:
    """One figure of one kind of request: under both files, the difference, and that of the old file to itself."""

    kind: str
    name: str
    old: Interval
    new: Interval
    difference: Interval
    control: Interval

    @property
    def resolves(self) -> float:
        """The smallest difference that this measurement can show: how far the control is from 0 at most."""
        return max(abs(self.control.low), abs(self.control.high))

    @property
    def is_seen(self) -> bool:
        """Whether the difference is one: its interval is without 0, and it is larger than what is resolved."""
        return not self.difference.holds(0.0) and abs(self.difference.value) > self.resolves

    def as_json(self) -> dict[str, Any]:
        """Return the figure for ``--json``."""
        parts = ("old", "new", "difference", "control")
        intervals = {part: getattr(self, part).as_json() for part in parts}
        named = {"kind": self.kind, "name": self.name, "unit": UNITS[self.name]}
        return {**named, **intervals, "resolves": self.resolves, "seen": self.is_seen}


@dataclass(frozen=True)
class Comparison:
    """What the new file costs against the old one; ``remarks`` say what was replaced, and what is not measured."""

    new: Path
    against: Path
    figures: Sequence[Figure]
    remarks: Sequence[str]

    def figure(self, kind: str, name: str) -> Figure | None:
        """Return one figure; None where there is none."""
        found = (figure for figure in self.figures if (figure.kind, figure.name) == (kind, name))
        return next(found, None)

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``--json``."""
        figures = [figure.as_json() for figure in self.figures]
        return {"new": str(self.new), "against": str(self.against), "figures": figures, "remarks": list(self.remarks)}


def compare(
    new: Path, against: Path, seconds: float, rounds: int, progress: Callable[[int], object] = lambda _: None
) -> Comparison:
    """Measure for ``seconds`` in all, in ``rounds`` processes; ``progress`` is called with the number of each round.

    Raises ``ConfigError`` for a file that cannot be used, ``RuntimeError`` with its output if a round fails.
    """
    files = {OLD: against, NEW: new, CONTROL: against}
    configs = {name: FileConfig(config_file=path) for name, path in files.items()}
    replaced = {name: replacements(config) for name, config in configs.items()}
    measured = []
    for number in range(rounds):
        progress(number)
        measured.append(measure(files, {name: both[0] for name, both in replaced.items()}, seconds / rounds, number))
    remarks = [f"{name}: {sentence}" for name in (OLD, NEW) for sentence in replaced[name][1]]
    return Comparison(new, against, figures(measured), [*remarks, *_dropped(measured)])


def replacements(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters that are replaced for the measurement, and a sentence about each that matters.

    Names of files and directories are relative to the scratch directory.
    """
    parameters: dict[str, Any] = {"directory": "segments", "queue_directory": "queues"}
    sentences = []

    def replace(name: str, value: Any, why: str) -> None:
        shown = "a scratch directory" if name in ("sink", "additional_sinks") else json.dumps(value)
        sentences.append(f"`{name}: {json.dumps(config.model_dump(mode='json')[name])}` is {shown} here: {why}")
        parameters[name] = value

    if config.sink not in ("file", "null"):
        replace("sink", "file", "where it leads is not part of the measurement")
    if config.additional_sinks:
        places = [f"file:///copy-{number}" for number in range(len(config.additional_sinks))]
        replace("additional_sinks", places, "one for each; their bytes are not in the figures")
    for name, value, why in _UNSUITED:
        if getattr(config, name) != value:
            replace(name, value, why)
    # Without a word: a sink that works has no need of the first one, and what removes nothing waits for nobody.
    parameters |= {"fallback": "none", "retention_waits_for": []}
    return parameters, sentences + _key_file(config, parameters)


_UNSUITED: Final[tuple[tuple[str, Any, str], ...]] = (
    ("listener", "thread", "it is measured in the same process"),
    ("audit", "off", "no request makes audit records by itself"),
    ("compress", "off", "what it takes and saves is not measured"),
    ("retention_s", 0.0, "nothing is removed meanwhile"),
    ("quota_bytes", 0, "nothing is removed meanwhile"),
    ("budget_records_s", 0, "requests come faster here than in a server, and the budget would thin them"),
    ("metrics_registry", "none", "metrics are not asked for here"),
    ("engine_records", "off", "there is no engine here"),
)


def _key_file(config: Config, parameters: dict[str, Any]) -> list[str]:
    path = config.capture_hash_key_file
    if path is None or os.access(path, os.R_OK):
        return []
    parameters["capture_hash_key_file"] = "key"
    return [f"`capture_hash_key_file: {json.dumps(str(path))}` cannot be read here: another key takes its place"]


def measure(
    files: Mapping[str, Path], parameters: Mapping[str, dict[str, Any]], seconds: float, number: int, *module: str
) -> dict[str, Any]:
    """Return what one round finds, in a process of its own; ``module`` with its arguments serves another application.

    Raises ``RuntimeError`` with its last line if it fails.
    """
    order: dict[str, Any] = {"seconds": seconds, "seed": number}
    with places() as (scratch, queues):
        for name in LOGGED:
            placed = _placed(parameters[name], scratch / name, queues / name)
            order[name] = {"file": str(files[name].absolute()), "parameters": placed}
        order["answer"] = str(scratch / "answer.json")
        name, *options = module or (ROUND,)
        limit_s = seconds + _ROUND_TIMEOUT_S
        found = child(name, json.dumps(order), scratch / "answer.json", limit_s, *options)
    if "problem" in found:
        raise RuntimeError(f"a round failed: {found['problem']}")
    return found


def _placed(parameters: Mapping[str, Any], scratch: Path, queues: Path) -> dict[str, Any]:
    placed = {**parameters, "directory": str(scratch / "segments"), "queue_directory": str(queues)}
    if "capture_hash_key_file" in parameters:
        key = scratch / parameters["capture_hash_key_file"]
        key.parent.mkdir()
        key.write_text(secrets.token_hex(32))
        placed["capture_hash_key_file"] = str(key)
    if "additional_sinks" in parameters:
        placed["additional_sinks"] = [
            place.replace("file://", f"file://{scratch}") for place in parameters["additional_sinks"]
        ]
    return placed


def _dropped(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    counts = {name: sum(found["dropped"][name] for found in measured) for name in (OLD, NEW)}
    return [f"{name}: {count:,} records were dropped meanwhile" for name, count in counts.items() if count]


def figures(measured: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the figures of all rounds: differences are taken within a batch, intervals over all batches."""
    found = []
    series: dict[str, dict[str, list[float]]] = {}
    for kind in KINDS:
        batches: list[Batch] = [batch for one in measured for batch in one["kinds"][kind.name]["batches"]]
        series[kind.name] = request_cpu = _series(batches, "cpu_us", less=NONE)
        found.append(_figure(kind.name, REQUEST_CPU, request_cpu))
        if kind == STREAM:
            found.append(_figure(kind.name, CHUNK_CPU, _of_chunks(request_cpu, series[GET.name])))
        series_of = {
            LISTENER_CPU: _series(batches, "listener_us"),
            RECORD_CPU: _series(batches, "listener_us_per_record"),
            RECORDS: _series(batches, "records"),
            BYTES: _series(batches, "bytes"),
        }
        found += [_figure(kind.name, name, values) for name, values in series_of.items() if values[OLD]]
    return found


def _series(batches: Sequence[Batch], key: str, less: str | None = None) -> dict[str, list[float]]:
    """Return a figure of each logged arm, batch by batch; ``less`` is the arm whose own is taken off."""
    taken: dict[str, list[float]] = {name: [] for name in LOGGED}
    for batch in batches:
        values = {name: batch[name][key] for name in LOGGED}
        off = batch[less][key] if less is not None else 0.0
        if off is None or any(value is None for value in values.values()):
            continue
        for name, value in values.items():
            taken[name].append((value or 0.0) - off)
    return taken


def _of_chunks(stream: Mapping[str, list[float]], get: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return the slope between a stream and a request without one; batches of the two are paired as they came."""
    return {
        name: [(one - other) / CHUNKS for one, other in zip(stream[name], get[name], strict=False)] for name in LOGGED
    }


def _figure(kind: str, name: str, values: Mapping[str, list[float]]) -> Figure:
    def between(one: str) -> Interval:
        return bootstrap([a - b for a, b in zip(values[one], values[OLD], strict=True)], trimmed_mean)

    old, new = (bootstrap(values[arm], trimmed_mean) for arm in (OLD, NEW))
    return Figure(kind, name, old, new, between(NEW), between(CONTROL))


_COLUMNS: Final = (
    "| | old | new | new − old | old − old (control) |\n"
    "|---|---|---|---|---|"
)  # fmt: skip
_HOW: Final = (
    "One process serves a bare ASGI application without logging, under both files, and under the old one once more, by "
    "turns; the CPU time without logging is taken off. Segments and queues are in scratch directories. In parentheses: "
    "intervals of 95 %. A difference counts as one if its interval is without 0 and it is larger than the control's."
)


def markdown(comparison: Comparison, changes: str = "") -> str:
    """Return the comparison as Markdown; ``changes`` says in words what differs, and stands before the figures."""
    return "\n".join(_lines(comparison, changes)) + "\n"


def _lines(comparison: Comparison, changes: str) -> Iterator[str]:
    yield f"## The cost of {comparison.new.name}, against {comparison.against.name}"
    yield ""
    yield _headline(comparison)
    yield ""
    if changes:
        yield changes.rstrip("\n")
        yield ""
    yield _COLUMNS
    for kind in KINDS:
        yield f"| **{kind.name}** | | | | |"
        yield from (_row(figure) for figure in comparison.figures if figure.kind == kind.name)
    yield ""
    yield f"{_HOW} {_machine()}"
    if comparison.remarks:
        yield ""
        yield from (f"* {remark}" for remark in comparison.remarks)


def _headline(comparison: Comparison) -> str:
    """Return one sentence about the request path of each kind."""
    parts = []
    for kind in (GET, POST, STREAM):
        figure = comparison.figure(kind.name, REQUEST_CPU)
        if figure is None:
            continue
        if figure.is_seen:
            parts.append(f"{_signed(figure.difference.value)} µs for a {kind.name}")
        else:
            parts.append(f"no difference seen for a {kind.name} (resolved: ±{number_text(figure.resolves)} µs)")
    return f"CPU time on the request path: {'; '.join(parts)}."


def _row(figure: Figure) -> str:
    unit = UNITS[figure.name]
    cells = [
        f"{figure.name}{f' ({unit})' if unit else ''}",
        number_text(figure.old.value),
        number_text(figure.new.value),
        _difference(figure),
        _within(figure.control),
    ]
    return f"| {' | '.join(cells)} |"


def _difference(figure: Figure) -> str:
    if not figure.is_seen:
        return f"none seen: {_within(figure.difference)}"
    value = figure.difference.value
    share = f", {'−' if value < 0 else '+'}{abs(value / figure.old.value):.0%}" if figure.old.value else ""
    return f"**{_within(figure.difference)}**{share}"


def _within(interval: Interval) -> str:
    return f"{_signed(interval.value)} ({_signed(interval.low)} … {_signed(interval.high)})"


def _signed(value: float) -> str:
    shown = number_text(abs(value))
    if not shown.strip("0."):
        return "0"
    return f"{'+' if value > 0 else '−'}{shown}"


def _machine() -> str:
    place = machine()
    return (
        f"Measured with Python {place['python']} on {place['cpu']}, {place['cores']} cores usable, load average "
        f"{place['load'][0]:.2f}."
    )
