"""The index template: what of a record is searched for, counted and sorted by, and what is only kept.

Fields that are not named here are kept and not indexed (``dynamic: false``), so that what an application names its
fields cannot fill the mapping. The names are those of records. The text of a request's body is the one exception: an
index cannot have it at ``http.request.body``, as its size stands below that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from inference_logging.read.segments.rows import COLUMNS, OTHER
from inference_logging.ship.opensearch.place import Place

VERSION: Final = 1
"""Raised with each change of the mapping."""
RENAMED: Final[Mapping[str, str]] = {"http.request.body": "http.request.body.text"}
MESSAGES: Final = (
    "gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages",
)  # fmt: skip
"""Captured texts."""

_KEPT: Final = {"type": "object", "enabled": False}
"""Any value, which is neither parsed nor indexed."""
_WORDS: Final = {"type": "match_only_text"}
_OF_DUCKDB: Final[Mapping[str, Mapping[str, Any]]] = {
    "TIMESTAMP": {"type": "date_nanos"},
    # A longer value is kept, and is not found.
    "VARCHAR": {"type": "keyword", "ignore_above": 1024},
    "VARCHAR[]": {"type": "keyword", "ignore_above": 1024},
    "BIGINT": {"type": "long"},
    "UBIGINT": {"type": "unsigned_long"},
    # One for each chunk: only for who reads the record.
    "BIGINT[]": _KEPT,
    "DOUBLE": {"type": "double"},
    "BOOLEAN": {"type": "boolean"},
    "JSON": _KEPT,
}
_OTHERWISE: Final[Mapping[str, Mapping[str, Any]]] = {
    "message": _WORDS,
    "exception.message": _WORDS,
    "exception.stacktrace": _KEPT,
    "http.request.body": _KEPT,
    **dict.fromkeys(MESSAGES, _KEPT),
}
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Other shippers add it.
    "@timestamp": {"type": "date_nanos"},
    **{
        RENAMED.get(name, name): _OTHERWISE.get(name, _OF_DUCKDB[kind])
        for name, kind in {**COLUMNS, **dict.fromkeys(MESSAGES, "JSON"), OTHER: "JSON"}.items()
    },
    "segment": {"type": "keyword"},
    "offset": {"type": "long", "index": False},
}
"""Name and mapping of each field."""


def template(index: str) -> dict[str, Any]:
    """Return the template of ``index`` by day, and of one without a day, which other shippers write to."""
    return {
        "index_patterns": [index, f"{index}-*"],
        # Two templates whose patterns overlap must differ in it; the longer name is the more exact one.
        "priority": 100 + len(index),
        "version": VERSION,
        "template": {
            "settings": {
                "index.codec": "best_compression",
                "index.refresh_interval": "5s",
                # Of what other shippers send: a value that is not of its type is kept, and is not found.
                "index.mapping.ignore_malformed": True,
            },
            "mappings": {"dynamic": False, "properties": FIELDS},
        },
        "_meta": {"description": "Records of inference-logging"},
    }


def text(place: Place) -> str:
    """Return it for an administrator, who may alter it before the first delivery."""
    return orjson.dumps(template(place.name), option=orjson.OPT_INDENT_2).decode() + "\n"
