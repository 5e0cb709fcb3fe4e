"""Names of columns that a statement gets wrong: SQL needs double quotes around a name with dots, and knows no alias."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from inference_logging.read.segments.columns import HEAD, LOGS, REQUESTS, RESOURCE
from inference_logging.read.where import ALIASES

_DOTTED: Final = sorted(name for name in {**HEAD, **LOGS, **REQUESTS, **RESOURCE} if "." in name)


def hints(sql: str, error: str) -> Iterator[str]:
    """Iterate over what to write for the names that the engine's error is about."""
    # It takes http in http.route for a table.
    dotted = [name for name in _DOTTED if f'"{name.partition(".")[0]}' in error]
    for name in _named(sql, dotted, r"""(?<![\w."'])""", r"""(?![\w."'])"""):
        yield f"""A name with dots stands in double quotes, "{name}", and the whole statement in single ones."""
    for name, fields in ALIASES.items():
        if f'"{name}"' in error:
            columns = ", ".join(f'"{field}"' for field in fields)
            yield f"For {name} write {columns if len(fields) == 1 else f'coalesce({columns})'}."


def why_no_rows(sql: str) -> str:
    """Return what may be wrong with a statement that had no rows."""
    for name in _named(sql, _DOTTED, "'", "'"):
        return f"""'{name}' is a text: the name of a column stands in double quotes, "{name}\""""
    return "`inference-logging tail` shows what there is"


def _named(sql: str, names: Iterable[str], before: str, after: str) -> Iterator[str]:
    return (name for name in names if re.search(before + re.escape(name) + after, sql, re.IGNORECASE))
