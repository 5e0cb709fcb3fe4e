"""A record as a message of RFC 5424: ids and the resource as structured data, and the whole record as JSON behind them.

JSON escapes control characters, so that a message has no line break, and none that a server would change. There is no
byte order mark before it: RFC 8259 forbids one before JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from inference_logging.ship.line import Line

FACILITIES: Final = {"user": 1, "daemon": 3} | {f"local{number}": 16 + number for number in range(8)}
FACILITY: Final = "local0"
ENTERPRISE: Final = 32473
"""The number that RFC 5612 sets aside for documents: no company has it, and this project has none of its own."""

SEVERITIES: Final = {"FATAL": 2, "ERROR": 3, "WARN": 4, "INFO": 6, "DEBUG": 7, "TRACE": 7}
"""By severity_text: critical, error, warning, informational, debug."""
_NOTICE: Final = 5
_IDS: Final = ("boot_id", "pid", "seq", "trace_id", "span_id", "request_id")
_NIL: Final = "-"
_OTHER: Final = re.compile(r"[^!-~]")
_OTHER_IN_NAME: Final = re.compile(r'[^!-~]|[=\]"]')
_ESCAPED: Final = re.compile(r'(["\\\]])')
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_HOSTNAME_LETTERS: Final = 255
_APP_NAME_LETTERS: Final = 48
_PROCID_LETTERS: Final = 128
_MSGID_LETTERS: Final = 32
_NAME_LETTERS: Final = 32
_MICROSECONDS_END: Final = 26


class Format:
    """How messages are made: their facility, and the enterprise number of their structured data."""

    def __init__(self, facility: str = FACILITY, enterprise: int = ENTERPRISE) -> None:
        """Keep them."""
        self._facility, self._enterprise = FACILITIES[facility], enterprise

    def message(self, line: Line) -> bytes:
        """Return the message of a line, without framing."""
        record, resource = line.record, line.resource
        severity = SEVERITIES.get(str(record.get("severity_text")), _NOTICE)
        host = resource.get("k8s.pod.name", resource.get("host.name"))
        fields = (
            f"<{self._facility * 8 + severity}>1",
            _time(record.get("timestamp")),
            _word(host, _HOSTNAME_LETTERS),
            _word(line.service_name, _APP_NAME_LETTERS),
            _word(record.get("pid"), _PROCID_LETTERS),
            _word(record.get("event_name"), _MSGID_LETTERS),
            self._structured(record, resource),
        )
        return b"%b %b" % (" ".join(fields).encode(), line.raw)

    def _structured(self, record: Mapping[str, Any], resource: Mapping[str, Any]) -> str:
        ids = {name: record[name] for name in _IDS if record.get(name) is not None}
        return self._element("inference_logging", ids) + self._element("resource", resource) or _NIL

    def _element(self, name: str, values: Mapping[str, Any]) -> str:
        parameters = "".join(f' {_name(key)}="{_value(value)}"' for key, value in values.items() if _name(key))
        return f"[{name}@{self._enterprise}{parameters}]" if parameters else ""


def _time(timestamp: Any) -> str:
    """Return a timestamp with microseconds, which is as many digits as the format has."""
    text = str(timestamp)
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text):
        return _NIL
    return f"{text.removesuffix('Z')[:_MICROSECONDS_END]}Z"


def _word(value: Any, letters: int) -> str:
    return _OTHER.sub("_", str(value))[:letters] or _NIL if value is not None else _NIL


def _name(name: str) -> str:
    return _OTHER_IN_NAME.sub("_", name)[:_NAME_LETTERS]


def _value(value: Any) -> str:
    """Return a value, its quotes escaped. A control character, for which servers have ways of their own, is U+FFFD."""
    return _ESCAPED.sub(r"\\\1", _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value)))
