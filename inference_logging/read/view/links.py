"""Links from a trace id to another page: `--trace-url Jaeger=https://jaeger.example.com/trace/{trace_id}`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

FORM: Final = "NAME=https://example.com/trace/{trace_id}"
_LONGEST: Final = 2048
_NAME: Final = re.compile(r"[^\s=][^=]{0,59}")
_FIELD: Final = "{trace_id}"


class Link(NamedTuple):
    """A page elsewhere for a trace: its name, and its address with ``{trace_id}``."""

    name: str
    template: str


def parse_link(text: str) -> Link:
    """Read ``NAME=TEMPLATE``. Raises ValueError with a sentence that names the text and what is allowed."""
    name, equals, template = (part.strip() for part in text.partition("="))
    shown = repr(text if len(text) <= 120 else text[:120] + "…")
    if not equals or _NAME.fullmatch(name) is None:
        raise ValueError(f"{shown}: must be {FORM}")
    if _FIELD not in template or re.search(r"[{}]", template.replace(_FIELD, "")):
        raise ValueError(f"{shown}: must have {_FIELD} in it, and no other braces")
    if len(template) > _LONGEST or not template.isprintable() or re.search(r"[\s<>\"'\\]", template):
        raise ValueError(f"{shown}: must be an address of at most {_LONGEST:,} printable characters")
    try:
        parts = urlsplit(template)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and _FIELD not in parts.netloc
    except ValueError:
        is_web = False
    if not is_web:
        raise ValueError(f"{shown}: must begin with http:// or https:// and the name of a host")
    return Link(name, template)
