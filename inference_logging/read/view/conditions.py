"""Whether a condition can find anything: a field that no record has, or a text where numbers are, is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from inference_logging.read.table.table import Table
from inference_logging.read.view.groups import number_of
from inference_logging.read.view.meanings import fields_with_meaning
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import BUDGET_S, QueryError
from inference_logging.read.where import ALIASES, Condition, meant, no_record_has

_MOST_OTHERS: Final = 1000


class Conditions:
    """Checks the fields of conditions; those of the applications' own are looked for in the records, once each."""

    def __init__(self, index: Table) -> None:
        """Look for them in ``index``."""
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
