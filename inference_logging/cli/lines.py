"""A record as one line for people: columns and colours on a terminal, the same text without them elsewhere.

The plain form is stable: timestamp, severity and event, then what the event is about, then ``key=value`` in the order
of the record. Left to JSON: what identifies process and span, and the list of gaps between chunks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from inference_logging.cli.terminal import safe, word

_HEAD: Final = frozenset({"timestamp", "severity_text", "event_name"})
_LEFT_OUT: Final = frozenset({"boot_id", "pid", "seq", "span_id", "parent_span_id", "trace_flags", "chunk_gaps_us"})
_SUBJECT: Final = {
    "request": ("http.request.method", "url.path", "http.response.status_code", "outcome"),
    "log": ("logger", "message"),
}
_SEVERITY_STYLES: Final = {"DEBUG": "dim", "INFO": "green", "WARN": "yellow", "ERROR": "bold red", "FATAL": "bold red"}
# A message is read as it was written, without quotes, unless it could be taken for the fields behind it.
_LIKE_A_FIELD: Final = re.compile(r"[\"=]|^\s|\s$")
_EVENT_WIDTH: Final = 12
_SEVERITY_WIDTH: Final = 5

Part = tuple[str, str]
"""Text that is safe on a terminal, and its style."""


def plain(record: Mapping[str, Any]) -> str:
    """Return the line as it goes to a file or a pipe."""
    return " ".join(text for text, _ in _parts(record) if text)


def writer() -> Callable[[Mapping[str, Any]], None]:
    """Return what writes a record to standard output: with colours if that is a terminal and rich is installed."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            return _write_plain
        console = Console(highlight=False)
        return lambda record: console.print(Text.assemble(*_columns(record)), soft_wrap=True)
    return _write_plain


def _write_plain(record: Mapping[str, Any]) -> None:
    sys.stdout.write(plain(record) + "\n")


def _columns(record: Mapping[str, Any]) -> Iterator[Part]:
    """Lay the parts out for a terminal: the time of day only, fixed widths at the beginning."""
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
