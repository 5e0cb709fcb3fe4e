"""Lines whose texts are hard on what passes them on."""

from __future__ import annotations

from typing import Any, Final

import orjson

from inference_logging.ship.line import Line
from tests.segment_files import log, request

RESOURCE: Final = {"service.name": "svc", "k8s.pod.name": "pod-1"}
TEXTS: Final = (
    'quotes " and \\ and ] and [x@1 a="b"]',
    "a line\nand another\r\n\tand\x00what follows\x1b[0m\x7f",
    "wörd 日本語 \U0001f389   \u2028 ﻿",
    "\ufffd, which stands for what was no text",
    "5 <13>1 - - - - - - another message\n",
    "",
    " ",
    "x" * (300 << 10),
)


def line(record: dict[str, Any], offset: int = 0, resource: dict[str, Any] | None = None) -> Line:
    """Return the line of a record."""
    return Line("svc", "svc-1.jsonl", offset, orjson.dumps(record), record, resource or RESOURCE)


AWKWARD: Final = [
    *(line(log(at, text, request_id=text[:100]), at) for at, text in enumerate(TEXTS)),
    line(request(100, error=TEXTS[0]), 100),
    line({"timestamp": "soon", "boot_id": "b"}, 101),
    line({"event_name": "an event with spaces " * 5, "pid": 1, "boot_id": None}, 102, {'a "]=\n': TEXTS[1]}),
]
LONG: Final = line(log(200, "x" * 500_000), 200)
