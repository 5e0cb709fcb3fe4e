"""Requests by the value of a field, so that the groups together are all requests: those without a value are one too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from inference_logging.read.table.table import Table
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import Query
from inference_logging.read.where import Condition, written

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


def counted(index: Table, query: Query) -> tuple[list[Group], bool]:
    """Return the values of ``field`` with their counts and conditions, and whether they are all, but for ``limit``."""
    limit = query.get("limit", MOST_GROUPS)
    found = asked(index.values, {**query, "limit": limit})
    groups = _named(query["field"], [{"value": one["value"], "count": [one["count"]]} for one in found])
    is_all = len(groups) < limit and _without(query, query["field"], groups) is not None
    return groups, is_all


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
        return [{"value": None, "rest": "more", "count": [number]}]
    asked_for = {name: one for name, one in left.items() if name not in ("group_by", "groups_limit")}
    return [{**_ask(index, asked_for), "value": None, "rest": "none"}]
