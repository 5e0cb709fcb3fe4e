"""A record as one line for people: columns and colours on a terminal, the same text without them elsewhere.

The plain form is stable: timestamp, severity and event, then what the event is about, then ``key=value`` in the order
of the record. Only JSON has the ids of process and span, and the list of gaps between chunks. A terminal gets the short
form, one line for each record, which is that of a server's console (docs/console.md) and comes from the native core.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson

from inference_logging._native import terminal_has_colours, terminal_line
from inference_logging.read.terminal import safe, word
from inference_logging.read.where import is_absent, look_up

_HEAD: Final = frozenset({"timestamp", "severity_text", "event_name"})
_LEFT_OUT: Final = frozenset({"boot_id", "pid", "seq", "span_id", "parent_span_id", "trace_flags", "chunk_gaps_us"})
_SUBJECT: Final = {
    "request": ("http.request.method", "url.path", "http.response.status_code", "outcome"),
    "log": ("logger", "message"),
}
_SEVERITY_STYLES: Final = {"DEBUG": "dim", "INFO": "green", "WARN": "yellow", "ERROR": "bold red", "FATAL": "bold red"}
# A message stands without quotes, as it was written, unless it could be mistaken for the fields behind it.
_LIKE_A_FIELD: Final = re.compile(r"[\"=]|^\s|\s$")
_EVENT_WIDTH: Final = 12
_SEVERITY_WIDTH: Final = 5

Part = tuple[str, str]
"""Text that is safe on a terminal, and its style."""


def plain(record: Mapping[str, Any]) -> str:
    """Return the line for a file or a pipe."""
    return " ".join(text for text, _ in _parts(record) if text)


def writer(fields: Collection[str] = (), *, verbose: bool = False) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes a record to standard output, in colour if that is a terminal and rich is installed.

    With ``fields`` only these follow the beginning of a line, for every event. With ``verbose`` a terminal shows all
    fields too.
    """
    if not sys.stdout.isatty():
        return lambda record: _write_plain(_chosen(record, fields))
    if not verbose and not fields:
        return partial(_write_short, colours=terminal_has_colours(True))
    parts = partial(_chosen_columns, fields=fields) if fields else _columns
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return lambda record: _write("".join(text for text, _ in parts(record)))
    console = Console(highlight=False)
    return lambda record: console.print(Text.assemble(*parts(record)), soft_wrap=True)


def _chosen(record: Mapping[str, Any], fields: Collection[str]) -> Mapping[str, Any]:
    """Return the record's beginning and only these of its fields; the whole record without ``fields``."""
    if not fields:
        return record
    head = {name: value for name, value in record.items() if name in _HEAD}
    found = ((name, look_up(record, name)) for name in fields)
    return head | {name: value for name, value in found if not is_absent(value)}


def _write_plain(record: Mapping[str, Any]) -> None:
    _write(plain(record))


def _write_short(record: Mapping[str, Any], colours: bool) -> None:
    _write(terminal_line(orjson.dumps(record), shutil.get_terminal_size().columns, colours))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _chosen_columns(record: Mapping[str, Any], fields: Collection[str]) -> Iterator[Part]:
    """Lay these fields out."""
    yield f"{safe(str(record.get('timestamp', '')))[11:23]} ", "cyan"
    yield f"{safe(str(record.get('event_name', ''))):<{_EVENT_WIDTH}}", "bold"
    for name in fields:
        value = look_up(record, name)
        yield f" {word(name)}=", "dim"
        yield "–" if is_absent(value) else word(value), ""


def _columns(record: Mapping[str, Any]) -> Iterator[Part]:
    """Lay all parts out for a terminal: only the time of day, and fixed widths at the beginning."""
    (stamp, _), (severity, severity_style), (event, event_style), *rest = _parts(record)
    yield f"{stamp[11:23]} ", "cyan"
    yield f"{severity:<{_SEVERITY_WIDTH}} ", severity_style
    yield f"{event:<{_EVENT_WIDTH}}", event_style
    for text, style in rest:
        key, equals, value = text.partition("=") if style == "key" else ("", "", text)
        yield f" {key}{equals}", "dim"
        yield value, "" if style == "key" else style


def _parts(record: Mapping[str, Any]) -> Iterator[Part]:
    severity, event = (str(record.get(name, "")) for name in ("severity_text", "event_name"))
    yield safe(str(record.get("timestamp", ""))), ""
    yield safe(severity), _SEVERITY_STYLES.get(severity.rstrip("234"), "")
    yield safe(event), "bold"
    subject = [name for name in _SUBJECT.get(event, ()) if name in record]
    for name in subject:
        yield _subject(name, record[name])
    for name, value in _flat(record):
        if name not in _HEAD and name not in _LEFT_OUT and name not in subject:
            yield f"{word(name)}={word(value)}", "key"


def _subject(name: str, value: Any) -> Part:
    if name == "outcome":
        return word(value), "green" if value == "ok" else "red"
    if name == "http.response.status_code":
        return word(value), "green" if isinstance(value, int) and value < 400 else "red"
    if name == "message" and isinstance(value, str) and not _LIKE_A_FIELD.search(value):
        return safe(value), ""
    return word(value) + (":" if name == "logger" else ""), ""


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if name == "attributes" and isinstance(value, Mapping):
            yield from ((f"attributes.{inner}", part) for inner, part in value.items())
        else:
            yield name, value
