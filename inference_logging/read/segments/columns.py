"""The fields of records: the catalogue of the core, and the columns that `query` and Parquet files make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from inference_logging._native import fields


class Field(NamedTuple):
    """One field of a record. ``source``: ``head``, ``server``, ``listener``, ``log``, ``resource`` or ``event``."""

    name: str
    source: str
    kind: str
    """DuckDB's type; empty: it is no column."""
    unit: str
    """As UCUM writes it; empty: none."""
    meaning: str
    has_few_values: bool


FIELDS: Final[Mapping[str, Field]] = {field[0]: Field(*field) for field in fields()}
"""Every field that this package writes, by name."""


def _of(*sources: str) -> dict[str, str]:
    return {field.name: field.kind for field in FIELDS.values() if field.kind and field.source in sources}


MODEL: Final = ("gen_ai.response.model", "gen_ai.request.model", "triton.model_name")
"""The fields that name the model of a request: the first that it has counts."""
HEAD: Final = _of("head")
"""The columns at the beginning of every record: name and DuckDB's type."""
_ATTRIBUTES: Final = {"attributes": FIELDS["attributes"].kind}
LOGS: Final = {**_of("log"), "request_id": FIELDS["request_id"].kind, **_ATTRIBUTES}
"""The columns that application records add."""
RESOURCE: Final = _of("resource")
"""The columns that a segment's header gives to each of its records."""
REQUESTS: Final = _of("server", "listener")
"""The columns that request records add: from the server or the listener, which reads bodies and derives values."""
EVENTS: Final[Mapping[str, str | None]] = {"requests": "request", "logs": "log", "records": None}
"""The tables of SQL, and the event that each has; None: every event."""
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": {**HEAD, **REQUESTS}, "logs": {**HEAD, **LOGS}, "records": {**HEAD, **LOGS, **REQUESTS},
}  # fmt: skip
"""The columns of each, but for those of the resource."""
