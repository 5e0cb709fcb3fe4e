"""Values that a condition may have: each with the number of records that the condition would find."""

from __future__ import annotations

from typing import Any, Final

from inference_logging.read.table.table import Table
from inference_logging.read.view.groups import counted, number_of, text_of
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import MOST_ROWS, Query
from inference_logging.read.where import Condition, full_name

_USUAL: Final = 100

Counted = list[dict[str, Any]]


def values(index: Table, query: Query) -> Counted:
    """Return the most frequent values of ``field``; ``count`` is what ``operator`` and the value find, or null.

    Without an operator each value comes with the condition that finds it.
    """
    if "operator" not in query:
        groups = counted(index, query)[0][: query.get("limit", _USUAL)]
        return [{"value": one["value"], "count": number_of(one), "condition": one["condition"]} for one in groups]
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
