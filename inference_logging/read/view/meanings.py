"""What each field means and in which unit it is, for the page: from the catalogue of the core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inference_logging.read.segments.columns import FIELDS, Field

_SEVERITY: Final = Field(
    "severity", "event", "", "", "Severity as OpenTelemetry's number: 9 INFO, 13 WARN, 17 ERROR.", has_few_values=True
)
_KNOWN: Final = {
    **{name: field for name, field in FIELDS.items() if field.kind or field.source == "event"},
    _SEVERITY.name: _SEVERITY,
}
_UNKNOWN: Final = Field("", "", "", "", "", has_few_values=False)
_TYPE_NAMES: Final = {"BIGINT": "integer", "UBIGINT": "integer", "DOUBLE": "number", "BOOLEAN": "boolean"}


def described(name: str) -> dict[str, str]:
    """Return type, unit and meaning of a field; a field of the application's own has no meaning here."""
    _, _, kind, unit, meaning, _ = _KNOWN.get(name, _UNKNOWN)
    name_of_type = "list" if kind.endswith("[]") else _TYPE_NAMES.get(kind, kind.lower().replace("varchar", "text"))
    return {"name": name, "type": name_of_type, "unit": unit, "meaning": meaning}


def fields_with_meaning(indexed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all known fields, those of the index first, each with type, unit and meaning."""
    found: dict[str, dict[str, Any]] = {}
    for field in indexed:
        known = described(str(field["name"]))
        found[known["name"]] = {**known, "type": known["type"] or field.get("type", ""), "indexed": True}
    for name in _KNOWN:
        found.setdefault(name, {**described(name), "indexed": False})
    return list(found.values())
