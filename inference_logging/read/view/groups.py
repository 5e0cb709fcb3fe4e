"""Requests by the value of a field, so that the groups together are all requests: those without a value are one too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from inference_logging.read.stats.histograms import Spans
from inference_logging.read.view.index import Index
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import Query
from inference_logging.read.where import ALIASES, Condition

Group = dict[str, Any]

MOST_GROUPS: Final = 100
_SUMS: Final = ("count", "weighted", "errors", "output_tokens", "input_tokens")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def grouped(index: Index, query: Query) -> Group:
    """Return an aggregate with groups by ``group_by``; the last one, of value null, are the requests in no other.

    ``rest`` says what these are: ``none``, without a value, or ``more``, where there are more values than groups.
    """
    limit = query.get("groups_limit", MOST_GROUPS)
    answers: list[Group] = []

    def find(left: Query, field: str) -> list[Group]:
        answers.append(_ask(index, {**left, "group_by": field, "groups_limit": limit}))
        groups: list[Group] = answers[-1]["groups"]
        return groups

    groups, left = _by_value(query, query["group_by"], find, limit)
    rest = _rest(index, answers[0], groups, left)
    is_complete = all(one["complete"] for one in [*answers, *rest] if "complete" in one)
    return {**answers[0], "groups": [*groups, *rest], "complete": is_complete}


def counted(index: Index, query: Query) -> tuple[list[Group], bool]:
    """Return the values of ``field`` with their counts and conditions, and whether they are all, but for ``limit``."""
    limit = query.get("limit", MOST_GROUPS)

    def find(left: Query, field: str) -> list[Group]:
        found = orjson.loads(asked(index.values, {**left, "field": field, "limit": limit}))
        return [{"value": one["value"], "count": [one["count"]]} for one in found]

    groups, left = _by_value(query, query["field"], find, limit)
    return sorted(groups, key=lambda one: -number_of(one)), left is not None


def _by_value(
    query: Query, name: str, find: Callable[[Query, str], list[Group]], limit: int
) -> tuple[list[Group], Query | None]:
    """Return groups by the first field of a name that a request has, and the query for those that have none."""
    found: dict[str, Group] = {}
    left: Query | None = query
    for field in ALIASES.get(name, (name,)):
        if left is None:
            break
        groups = find(left, field)
        for group in groups:
            _add(found, group, f"{field}={text_of(group['value'])}")
        left = _without(left, field, [group["value"] for group in groups]) if len(groups) < limit else None
    return list(found.values()), left


def number_of(group: Group) -> int:
    """Return how many requests a group, or a whole aggregate, has."""
    return sum(group["count"])


def text_of(value: Any) -> str:
    """Return a value as a condition has it: strings as they are, others in their JSON form."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _ask(index: Index, query: Query) -> Group:
    answer: Group = orjson.loads(asked(index.aggregate, query))
    return answer


def _without(query: Query, field: str, values: Sequence[Any]) -> Query | None:
    """Return the query for what has none of these values; None where no condition can say so."""
    conditions = [f"{field}!={text_of(value)}" for value in values]
    says_so = (not Condition.parse(one).holds({field: value}) for one, value in zip(conditions, values, strict=True))
    return {**query, "where": [*query.get("where", []), *conditions]} if all(says_so) else None


def _rest(index: Index, whole: Group, groups: Sequence[Group], left: Query | None) -> list[Group]:
    """Return the group of what is in no other one, if there is any."""
    number = number_of(whole) - sum(map(number_of, groups))
    if number <= 0:
        return []
    if left is None:
        return [{"value": None, "rest": "more", "count": [number]}]
    asked_for = {name: one for name, one in left.items() if name not in ("group_by", "groups_limit")}
    return [{**_ask(index, asked_for), "value": None, "rest": "none"}]


def _add(found: dict[str, Group], group: Group, condition: str) -> None:
    """Add a group to those found; of two with the same value the condition of the larger one stays."""
    name = text_of(group["value"])
    group = {**group, "condition": condition}
    if name in found:
        larger = max(found[name], group, key=number_of)
        group = {**merged(found[name], group), "condition": larger["condition"]}
    found[name] = group


def merged(one: Group, other: Group) -> Group:
    """Return two groups as one."""
    sums: Group = {name: [a + b for a, b in zip(one[name], other[name], strict=True)] for name in _SUMS if name in one}
    fields: Group = {name: _distribution(of, other["fields"][name]) for name, of in one.get("fields", {}).items()}
    return {**one, **sums, "fields": fields}


def _distribution(one: Group, other: Group) -> Group:
    """Return two distributions as one; its quantiles are as exact as the histogram, an eighth of a doubling."""
    if not one["count"] or not other["count"]:
        return one if one["count"] else other
    histogram = _histogram(one["histogram"], other["histogram"])
    weights = [sum(part["histogram"]["counts"]) for part in (one, other)]
    greatest = max(one["max"], other["max"])
    spans = Spans(histogram["edges"], [histogram["counts"]])
    quantiles = {name: min(spans.quantile(share), greatest) for name, share in _QUANTILES.items()}
    mean = (one["mean"] * weights[0] + other["mean"] * weights[1]) / sum(weights)
    return {"count": one["count"] + other["count"], "mean": mean, "max": greatest, "histogram": histogram, **quantiles}


def _histogram(*parts: Group) -> Group:
    """Return histograms as one; their edges are those of one lattice."""
    counts: Counter[float] = Counter()
    for part in parts:
        for edge, count in zip(part["edges"], part["counts"], strict=False):
            counts[edge] += count
    edges = sorted({*counts, *(part["edges"][-1] for part in parts)})
    return {"edges": edges, "counts": [counts[edge] for edge in edges[:-1]]}
