"""The type of a field whose values have different types in different files, as DuckDB has it within one file.

No value is lost by it: where types have nothing in common it is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

_NUMBERS: Final = ("BIGINT", "UBIGINT", "HUGEINT", "DOUBLE")
"""Each takes those before it."""
_TEXTS: Final = ("VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID")
"""What the engine makes of texts, where all values have such a form."""
_NOTHING: Final = '"NULL"'


def common(one: DuckDBPyType, other: DuckDBPyType) -> str:
    """Return the name of the type for the values of both."""
    first, second = str(one), str(other)
    if first == second or second == _NOTHING:
        return first
    if first == _NOTHING:
        return second
    if first in _NUMBERS and second in _NUMBERS:
        return max(first, second, key=_NUMBERS.index)
    if first in _TEXTS and second in _TEXTS:
        return "VARCHAR"
    if one.id == other.id == "list":
        return f"{common(_children(one)['child'], _children(other)['child'])}[]"
    if one.id == other.id == "struct":
        return _struct(_children(one), _children(other))
    return "JSON"


def _children(kind: DuckDBPyType) -> dict[str, Any]:
    return dict(kind.children)


def _struct(one: Mapping[str, DuckDBPyType], other: Mapping[str, DuckDBPyType]) -> str:
    fields = {name: common(one.get(name, kind), other.get(name, kind)) for name, kind in {**one, **other}.items()}
    quoted = ('"{}" {}'.format(name.replace('"', '""'), kind) for name, kind in fields.items())
    return f"STRUCT({', '.join(quoted)})"
