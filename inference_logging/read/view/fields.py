"""What the page offers about fields: meaning and unit, groups by their values, and conditions that can find something.

Meanings are from the catalogue of the core. Groups together are all requests: those without a value are one too. A
condition on a field that no record has, or a text where numbers are, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from inference_logging.read.segments.columns import FIELDS, Field
from inference_logging.read.table.table import Table
from inference_logging.read.view.queries import BUDGET_S, MOST_ROWS, Query, QueryError, asked
from inference_logging.read.where import ALIASES, Condition, full_name, meant, no_record_has, written

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


Group = dict[str, Any]

MOST_GROUPS: Final = 100


def grouped(index: Table, query: Query) -> Group:
    """Return an aggregate with groups by ``group_by``; the last one, of value null, are the requests in no other.

    ``rest`` says what these are: ``none``, without a value, or ``more``, where there are more values than groups.
    """
    limit = query.get("groups_limit", MOST_GROUPS)
    whole = _ask(index, {**query, "groups_limit": limit})
    groups = _named(query["group_by"], whole["groups"])
    left = _without(query, query["group_by"], groups) if len(groups) < limit else None
    rest = _rest(index, whole, groups, left)
    is_complete = all(one["complete"] for one in [whole, *rest] if "complete" in one)
    return {**whole, "groups": [*groups, *rest], "complete": is_complete}


def _named(field: str, groups: Sequence[Group]) -> list[Group]:
    """Return groups with the condition that finds each."""
    return [{**group, "condition": written(field, "=", text_of(group["value"]))} for group in groups]


def number_of(group: Group) -> int:
    """Return how many requests a group, or a whole aggregate, has."""
    return sum(group["count"])


def text_of(value: Any) -> str:
    """Return a value as a condition has it: strings as they are, others in their JSON form."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _ask(index: Table, query: Query) -> Group:
    answer: Group = asked(index.aggregate, query)
    return answer


def _without(query: Query, field: str, groups: Sequence[Group]) -> Query | None:
    """Return the query for what is in none of these groups; None where no condition can say so."""
    values = [group["value"] for group in groups]
    conditions = [f"{field}!={text_of(value)}" for value in values]
    says_so = (not Condition.parse(one).holds({field: value}) for one, value in zip(conditions, values, strict=True))
    return {**query, "where": [*query.get("where", []), *conditions]} if all(says_so) else None


def _rest(index: Table, whole: Group, groups: Sequence[Group], left: Query | None) -> list[Group]:
    """Return the group of what is in no other one, if there is any."""
    number = number_of(whole) - sum(map(number_of, groups))
    if number <= 0:
        return []
    if left is None:
        weighted = sum(whole["weighted"]) - sum(sum(one["weighted"]) for one in groups)
        return [{"value": None, "rest": "more", "count": [number], "weighted": [weighted]}]
    asked_for = {name: one for name, one in left.items() if name not in ("group_by", "groups_limit")}
    return [{**_ask(index, asked_for), "value": None, "rest": "none"}]


_USUAL: Final = 100

Counted = list[dict[str, Any]]


def values(index: Table, query: Query) -> Counted:
    """Return the most frequent values of ``field``; ``count`` is what ``operator`` and the value find, or null.

    Without an operator each value comes with the condition that finds it.
    """
    if "operator" not in query:
        return _named(query["field"], asked(index.values, {**query, "limit": query.get("limit", _USUAL)}))
    operator = query["operator"]
    field = full_name(query["field"])
    plain = {**{name: one for name, one in query.items() if name != "operator"}, "field": field}
    found: Counted = asked(index.values, {**plain, "limit": MOST_ROWS})
    if operator == "!=":
        found.append({"value": None, "count": _total(index, plain) - sum(one["count"] for one in found)})
    shown = [one for one in found if one["value"] is not None][: query.get("limit", _USUAL)]
    is_all = operator in ("=", "!=") or len(found) < MOST_ROWS
    find = _finder(field, operator, found)
    return [{"value": one["value"], "count": find(one["value"]) if is_all else None} for one in shown]


def _finder(field: str, operator: str, found: Counted) -> Any:
    """Return what counts the records that the operator and a value find; null in ``found`` are those without one."""
    records = [({} if one["value"] is None else {field: one["value"]}, one["count"]) for one in found]

    def find(value: Any) -> int:
        condition = Condition.parse(f"{field}{operator}{text_of(value)}")
        return sum(count for record, count in records if condition.holds(record))

    return find


def _total(index: Table, query: Query) -> int:
    plain = {name: one for name, one in query.items() if name not in ("field", "limit")}
    return number_of(asked(index.aggregate, {**plain, "buckets": 1, "fields": []}))


_MOST_OTHERS: Final = 1000


class Conditions:
    """Checks the fields of conditions; those of the applications' own are looked for in the records, once each."""

    def __init__(self, index: Table) -> None:
        self._index = index
        self._known = {*ALIASES, *(one["name"] for one in fields_with_meaning(index.fields()))}
        self._others: set[str] = set()

    def check(self, text: str) -> str:
        """Return a condition with its field in full; raise ``QueryError`` if no record can fulfill it."""
        try:
            full = meant(text).in_full()
        except ValueError as error:
            raise QueryError(str(error)) from None
        self.check_fields([full])
        return full

    def check_fields(self, conditions: Iterable[str]) -> None:
        """Raise ``QueryError`` if no record has the field of one of the conditions."""
        for name in (Condition.parse(one).field for one in conditions):
            if name in self._known or name in self._others:
                continue
            if not self._may_have(where=[f"{name}~"]) and self._may_have():
                raise QueryError(no_record_has("field", name, self._known))
            if len(self._others) < _MOST_OTHERS:
                self._others.add(name)

    def _may_have(self, **which: Any) -> bool:
        """Return whether there is such a record, or not all records could be read in time."""
        query = {**which, "buckets": 1, "fields": [], "budget_s": BUDGET_S}
        found: dict[str, Any] = asked(self._index.aggregate, query)
        return number_of(found) > 0 or not found["complete"]
