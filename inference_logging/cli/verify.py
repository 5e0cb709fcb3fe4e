"""`inference-logging verify`: do the books balance, and if not, which records are missing, since when, and why.

The work is done in Rust, on all processors. Here it is put into words for somebody who was woken by an alarm: the
answer first, then what does not balance and where to look, then the counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from inference_logging import _native
from inference_logging.cli.examples import examples
from inference_logging.cli.main import FAILED, OK
from inference_logging.cli.options import CONFIG, PREFIX, SERVICE_NAME, configuration
from inference_logging.cli.terminal import safe
from inference_logging.config import Config
from inference_logging.config.parameters.audit import AUDIT_SUFFIX
from inference_logging.origin import queue_directories_of

AUDIT_DIRECTORY: Final = "audit"
"""Below a directory of segments, and below a queue directory: the audit lane's."""
SHOWN: Final = 20
"""Problems, processes and gaps that are listed; --json has all."""

_KEY: Final = re.compile(rb"\s*([0-9a-f]{64})\s*")
_COLUMNS: Final = ("accepted", "written", "removed", "lost", "in_queue", "missing", "doubled")
_MEANINGS: Final = {
    "accepted": "records that processes put into their queues",
    "written": "stand in the segments",
    "removed": "stood in segments that retention removed, and told of",
    "lost": "torn or corrupt: a process was killed while it wrote them; counted",
    "in_queue": "wait in queues",
    "missing": "are nowhere, and nothing explains it",
    "doubled": "stand more than once",
}
_REASONS: Final = {
    "retention": "removed by retention",
    "torn": "torn: the process was killed while it wrote them",
    "corrupt": "corrupt: could not be read in the queue",
    "line_removed": "lines were removed from a sealed segment",
    "segment_missing": "a whole segment is missing, and no segments.removed record tells of it",
    "shutdown_deadline": "left in the queue at a shutdown; if that queue still exists, run inference-logging recover",
    "unknown": "nothing tells why",
}
_STATES: Final = {
    "closed": "ended in order",
    "died": "died (recovered)",
    "alive": "alive",
    "waiting_for_a_listener": "ended, its queue waits for a listener",
    "removed": "all its records were removed by retention",
    "end_unknown": "no sign of its end, and no queue",
}


@click.command(
    "verify",
    epilog=examples(
        "inference-logging verify",
        "inference-logging verify logs --queue-directory /dev/shm/inference_logging-0-chat",
        "inference-logging verify logs logs-fallback --json | python3 -m json.tool",
    ),
)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option(
    "--queue-directory",
    "queues",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Directory of the processes' queues; may be repeated. Without it, those that the segments name, and that of a "
    "configured DIR.",
)
@CONFIG
@SERVICE_NAME
@PREFIX
@click.option(
    "--chain-key-file",
    type=click.Path(path_type=Path),
    help="Key of the audit lane's chain, as audit_chain_key_file. Without it, the configured one.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of words.")
def command(
    directories: tuple[Path, ...],
    queues: tuple[Path, ...],
    config_file: Path | None,
    service_name: str | None,
    prefixes: Sequence[str] | None,
    chain_key_file: Path | None,
    as_json: bool,
) -> int:
    """Prove that no record is missing in the segments of each DIR (default: the configured one), or name each gap.

    Per process: accepted = written + removed by retention + torn or corrupt + in its queue. All that belongs to one set
    of processes must be given together: the sink's directory and its fallback's. Segments are read plain, compressed
    and while they are written; those of the audit lane in DIR/audit too, or its SQLite database, and their hash chain
    is checked. A sealed segment is compared with the counts and the checksum in its footer, so that lines altered since
    are found. What was removed at the end of a chain shows only to who noted its last value elsewhere: it is printed.

    Exit code: 0 only if the books balance, 1 if they do not or something cannot be read, 2 for a wrong command line or
    configuration.
    """
    config = configuration(config_file=config_file, service_name=service_name)
    prefixes = (*(prefixes or ()), *([service_name] if service_name is not None else ())) or None
    chosen = list(directories) or [config.directory]
    all_queues = _queue_directories(chosen, queues, config)
    if not directories and all_queues and not config.directory.is_dir():
        chosen = []  # servers have begun to produce, and no listener to write
    for directory in (*chosen, *all_queues):
        if not directory.is_dir():
            raise click.UsageError(f"{directory}: no such directory")
    read = _with_audit(chosen, config)
    found = json.loads(
        _native.verify(
            read,
            _with_audit(all_queues),
            [of for name in prefixes or () for of in (name, name + AUDIT_SUFFIX)],
            _read_key(chain_key_file or config.audit_chain_key_file),
            _databases(read, prefixes),
        )
    )
    if not found["segments"]["files"] and not found["processes"] and not found["problems"]:
        raise click.UsageError(f"no segments in {', '.join(map(str, chosen)) or config.directory}, and no queues")
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(_text(found)))
    return OK if found["balanced"] else FAILED


def _with_audit(directories: Sequence[Path], config: Config | None = None) -> list[Path]:
    """Return the directories and, where there is one, that of the audit lane below or as configured; each once."""
    below = [directory / AUDIT_DIRECTORY for directory in directories]
    if config is not None and _has(directories, config.directory):
        below.append(config.resolved_audit_directory)
    audit = [directory for directory in below if directory.is_dir()]
    return list({directory.resolve(): directory for directory in (*directories, *audit)}.values())


def _has(directories: Sequence[Path], directory: Path) -> bool:
    return directory.resolve() in {one.resolve() for one in directories}


def _databases(
    directories: Sequence[Path], prefixes: Sequence[str] | None
) -> list[tuple[Path, str, Callable[[], Iterator[bytes]]]]:
    """Return the audit lane's databases there: path, prefix, and what reads their lines."""
    paths = [path for directory in directories for path in sorted(directory.glob(f"*{AUDIT_SUFFIX}.sqlite"))]
    chosen = [path for path in paths if not prefixes or path.stem.removesuffix(AUDIT_SUFFIX) in prefixes]
    if not chosen:
        return []
    from inference_logging.audit_sqlite import blocks_of_lines  # sqlite3 only where there is a database

    return [(path, path.stem, partial(blocks_of_lines, path)) for path in chosen]


def _queue_directories(directories: Sequence[Path], given: Sequence[Path], config: Config) -> list[Path]:
    """Return the queue directories: as given or among DIR, else what the segments name, and a configured DIR's."""
    found = [*given, *(directory for directory in directories if (directory / "leader.lock").exists())]
    if found:
        return found
    found = [queues for directory in directories if directory.is_dir() for queues in queue_directories_of(directory)]
    configured = config.resolved_queue_directory
    if _has(directories, config.directory) and configured.is_dir() and not _has(found, configured):
        found.append(configured)
    return found


def _read_key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        match = _KEY.fullmatch(path.read_bytes())
    except OSError as error:
        raise click.UsageError(f"chain_key_file={path}: {error.strerror}") from None
    if match is None:
        raise click.UsageError(f"chain_key_file={path}: must hold 64 lowercase hexadecimal digits")
    return bytes.fromhex(match[1].decode())


def _text(found: Mapping[str, Any]) -> Iterator[str]:
    problems, processes = found["problems"], found["processes"]
    if found["balanced"]:
        yield f"BALANCED: every record of {_count(len(processes), 'process', 'processes')} is accounted for."
    else:
        yield f"NOT BALANCED: {_count(len(problems), 'problem')}."
        yield ""
        yield from _numbered(problems, processes)
    yield ""
    yield from _totals(found["totals"])
    yield ""
    yield from _processes(processes)
    yield from _gaps(processes)
    yield from _notes(found)
    yield ""
    yield _what_was_read(found)


def _numbered(problems: Sequence[Mapping[str, Any]], processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    gaps = {(one["boot_id"], gap["first"]): gap for one in processes for gap in one["gaps"]}
    pids = {one["boot_id"]: one["pid"] for one in processes}
    for number, problem in enumerate(problems[:SHOWN], 1):
        yield f"{number:3}. {_headline(problem, pids)}"
        gap = gaps.get((problem.get("boot_id"), problem.get("first")))
        if problem["kind"] == "missing" and gap is not None:
            yield f"     when:  {_between(gap)}"
            yield f"     why:   {_REASONS[gap['reason']]}"
            if gap["detail"]:
                yield f"     where: {safe(gap['detail'])}"
        else:
            yield f"     what:  {safe(problem['text'])}"
            if "segment" in problem:
                line = f", line {problem['line']}" if "line" in problem else ""
                yield f"     where: {safe(problem['segment'])}{line}"
    if len(problems) > SHOWN:
        yield f"     … and {len(problems) - SHOWN} more: --json lists all"


def _headline(problem: Mapping[str, Any], pids: Mapping[str, int]) -> str:
    words = str(problem["kind"]).replace("_", " ").upper()
    if "boot_id" in problem:
        words += f": process {problem['boot_id']} (pid {pids.get(problem['boot_id'], '?')})"
    if "first" in problem:
        words += f", {_span(problem['first'], problem['last'])}"
    return words


def _totals(totals: Mapping[str, Any]) -> Iterator[str]:
    width = max(len(f"{totals.get(name, 0):,}") for name in _COLUMNS)
    for name in _COLUMNS:
        sign = " " if name in ("accepted", "doubled") else "=" if name == "written" else "+"
        yield f"{sign} {name.replace('_', ' '):<9} {totals.get(name, 0):>{width},}  {_MEANINGS[name]}"
    accepted = ("torn", "corrupt", "shutdown_deadline")
    refused = {reason: count for reason, count in totals["dropped"].items() if reason not in accepted}
    told = ", ".join(f"{reason} {count:,}" for reason, count in refused.items() if count)
    yield f"Refused, and so never accepted: {told or 'none'}."
    if left := totals["dropped"].get("shutdown_deadline"):
        yield f"Left in queues at a shutdown (shutdown_deadline), if no listener has come since: {left:,}."


def _processes(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    worst_first = sorted(processes, key=lambda one: one["missing"] + one["doubled"] == 0)
    heads = ("process", "pid", *(name.replace("_", " ") for name in _COLUMNS), "state")
    rows = [heads, *(_row(one) for one in worst_first[:SHOWN])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for process, *counts, state in rows:
        cells = [cell.rjust(width) for cell, width in zip(counts, widths[1:-1], strict=True)]
        yield "  ".join([process.ljust(widths[0]), *cells, state])
    if len(processes) > SHOWN:
        yield f"… and {len(processes) - SHOWN} more that balance or follow: --json lists all"


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (one["boot_id"], str(one["pid"]), *(f"{one[name]:,}" for name in _COLUMNS), _STATES[one["state"]])


def _gaps(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Tell the gaps that are explained: they are no problem, but somebody may look for these records."""
    explained = ("retention", "torn", "corrupt")
    gaps = [(one, gap) for one in processes for gap in one["gaps"] if gap["reason"] in explained]
    if gaps:
        yield ""
        yield "Explained gaps:"
    for one, gap in gaps[:SHOWN]:
        yield f"  {one['boot_id']} {_span(gap['first'], gap['last'])}, {_between(gap)}: {_REASONS[gap['reason']]}"
    if len(gaps) > SHOWN:
        yield f"  … and {len(gaps) - SHOWN} more"


def _notes(found: Mapping[str, Any]) -> Iterator[str]:
    notes = [f"{safe(note['segment'])}: {safe(note['text'])}" for note in found["notes"]]
    waiting = [one for one in found["processes"] if one["state"] == "waiting_for_a_listener"]
    records, requests = (sum(one[name] for one in waiting) for name in ("in_queue", "in_flight"))
    if records or requests:
        words = f"{_count(records, 'record')} and {_count(requests, 'request')} in flight"
        notes.insert(0, f"{words} of processes that have ended wait for a listener, or for inference-logging recover")
    if notes:
        yield ""
        yield "Worth knowing, no fault:"
    yield from (f"  {note}" for note in notes[:SHOWN])
    if len(notes) > SHOWN:
        yield f"  … and {len(notes) - SHOWN} more"


def _what_was_read(found: Mapping[str, Any]) -> str:
    segments, chain = found["segments"], found["chain"]
    speed = segments["bytes"] / 1e6 / max(found["seconds"], 1e-9)
    words = (
        f"Read {_count(segments['files'], 'segment')} ({segments['compressed']} compressed, {segments['live']} live), "
        f"{segments['lines']:,} lines, {segments['bytes'] / 1e6:,.1f} MB in {found['seconds']:.2f} s "
        f"({speed:,.0f} MB/s)."
    )
    if chain is not None:
        key = "with" if chain["keyed"] else "without"
        words += f" Chain: {chain['algorithm']} {key} a key, over {_count(chain['segments'], 'segment')}."
        words += "".join(f"\nLast value, of {safe(one['segment'])}: {one['value']}" for one in chain["last"])
    return words


def _span(first: int, last: int) -> str:
    return f"seq {first}" if first == last else f"seq {first} to {last} ({last - first + 1:,} records)"


def _between(gap: Mapping[str, Any]) -> str:
    return f"after {gap['from'] or 'the beginning'}, before {gap['to'] or 'the end'}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
