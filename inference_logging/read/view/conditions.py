"""Whether a condition can find anything: a field that no record has, or a text where numbers are, is refused."""

from __future__ import annotations

from typing import Any

import orjson

from inference_logging.read.view.groups import number_of
from inference_logging.read.view.index import Index
from inference_logging.read.view.meanings import fields_with_meaning
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import BUDGET_S, QueryError
from inference_logging.read.where import Condition, mistake, nearest


def check(index: Index, text: str) -> str:
    """Return a condition with its field in full; raise ``QueryError`` if no record can fulfill it."""
    try:
        wrong = mistake(text)
    except ValueError as error:
        raise QueryError(str(error)) from None
    if wrong is not None:
        raise QueryError(wrong)
    full = Condition.parse(text).in_full()
    types = {one["name"]: one["type"] for one in fields_with_meaning(orjson.loads(index.fields()))}
    name = Condition.parse(full).field
    if name not in types and not may_occur(index, name):
        near = nearest(name, types)
        raise QueryError(f"{name!r}: no record here has this field{f'; the nearest is {near[0]!r}' if near else ''}")
    return full


def may_occur(index: Index, name: str) -> bool:
    """Return whether a record has the field, or not all records could be read in time."""
    query = {"where": [f"{name}~"], "buckets": 1, "fields": [], "budget_s": BUDGET_S}
    found: dict[str, Any] = orjson.loads(asked(index.aggregate, query))
    return number_of(found) > 0 or not found["complete"]
