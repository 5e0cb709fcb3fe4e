"""Which rows a question is about: by SQL over the columns, and by their lines where columns do not say it.

Lines are read for odd records, where a field is no column, and where a text is searched for. What is found by lines
joins the rows of the columns in a small table, with the same expressions for the same things.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from inference_logging.read.table.catalog import Entry
from inference_logging.read.table.columns import ALL, TIMESTAMP, with_derived
from inference_logging.read.table.conditions import Values, as_sql, with_value
from inference_logging.read.table.engine import name, texts
from inference_logging.read.where import Condition

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOMENT: Final = f"epoch_ns({TIMESTAMP})"
_PLACE: Final = f'{MOMENT}, "offset", length'
_LINES_AT_ONCE: Final = 2048
"""Lines that are read before the next look at the clock."""
_FEW: Final = 10_000
"""Rows that are copied once, which is quicker than to plan and read the relation for each statement."""
_MOST_NS: Final = (1 << 63) - 1
_NO_BUDGET_S: Final = 3600.0
_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Record = dict[str, Any]
Found = Callable[[Record, int, str, int], Sequence[Any]]
"""Makes a row of a record, its time, its segment and its offset."""


class Question:
    """The part of a question that says which records are meant."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        """Read it. Raises ValueError naming what is wrong."""
        self.events: list[str] = query.get("events") or []
        trace = query.get("trace")
        self.trace: str | None = None if trace is None else trace.strip().lower()
        self.from_ns, self.to_ns = int(query.get("from_ns") or 0), int(query.get("to_ns") or _MOST_NS)
        self.text: str = query.get("text") or ""
        self._needle = _lower(self.text.encode("utf-8", "surrogatepass"))
        self.directories: list[str] | None = query.get("directories")
        self.segments: Mapping[str, int] | None = query.get("segments")
        self.deadline_s = time.monotonic() + (query.get("budget_s") or _NO_BUDGET_S)
        self.conditions = [self._condition(one) for one in query.get("where") or ()]

    @staticmethod
    def _condition(given: str) -> Condition:
        try:
            return Condition.parse(given)
        except ValueError as error:
            raise ValueError(f"where={error}") from None

    def chosen(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the segments that can have such records."""
        return [
            entry
            for entry in entries
            if (self.segments is None or entry.name in self.segments)
            and (self.directories is None or str(entry.directory) in self.directories)
            and (
                entry.facts is None
                or not entry.facts.rows
                or (entry.facts.last_ns >= self.from_ns and entry.facts.first_ns < self.to_ns)
            )
        ]

    def decided(self, values: Values) -> tuple[str, bool]:
        """Return SQL of the conditions that columns answer, and whether these are all."""
        parts = []
        if self.events:
            parts.append(
                f"coalesce(event_name IN ({', '.join(with_value(values, one) for one in self.events)}), false)"
            )
        if self.trace:
            parts.append(f"coalesce(starts_with(trace_id, {with_value(values, self.trace)}), false)")
        is_all = not self.text
        for condition in self.conditions:
            sql = as_sql(condition, values)
            is_all = is_all and sql is not None
            parts += [sql] if sql is not None else []
        return " AND ".join(parts) or "true", is_all

    def within(self, values: Values) -> str:
        """Return SQL of the times, and of the places behind which records are asked for."""
        parts = []
        if self.from_ns > 0:
            parts.append(f"{TIMESTAMP} >= make_timestamp_ns({with_value(values, self.from_ns)})")
        if self.to_ns < _MOST_NS:
            parts.append(f"{TIMESTAMP} < make_timestamp_ns({with_value(values, self.to_ns)})")
        begun = {segment: offset for segment, offset in (self.segments or {}).items() if offset > 0}
        for segment, offset in begun.items():
            place = with_value(values, segment), with_value(values, min(offset, _MOST_NS))
            parts.append(f'(segment <> {place[0]} OR "offset" >= {place[1]})')
        return " AND ".join(parts) or "true"

    def holds(self, line: bytes, record: Record) -> bool:
        """Return whether a record, of which this is the line, is one of them: as the SQL says it of columns."""
        return (
            (not self.events or record.get("event_name") in self.events)
            and (not self.trace or str(record.get("trace_id", "")).startswith(self.trace))
            and all(condition.holds(record) for condition in self.conditions)
            and (not self.text or self._has_text(line))
        )

    def _has_text(self, line: bytes) -> bool:
        """Return whether the text of a line, its escapes resolved, has another; ASCII letters match in both cases."""
        if b"\\" in line:
            line = _ESCAPE.sub(_resolved, line.decode("utf-8", "surrogatepass")).encode("utf-16", "surrogatepass")
            line = line.decode("utf-16", "replace").encode()
        return self._needle in _lower(line)


def _lower(text: bytes) -> bytes:
    return text.lower()


def _resolved(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SHORT.get(match[2], match[2])


def source(entries: Sequence[Entry], used: str) -> str:
    """Return the rows of segments as SQL: files, and tables in memory as far as their facts say.

    They have the columns whose names stand in ``used``, and ``odd``: to bind all takes DuckDB longer than a small
    question does.
    """
    names = [column for column in ALL if column in used or column == "odd"]
    columns = ", ".join(map(name, names))
    files = [str(entry.file) for entry in entries if entry.file is not None]
    parts = [f"SELECT {columns} FROM read_parquet({texts(files)})"] if files else []
    parts += [
        f'SELECT {columns} FROM {table} WHERE "offset" < {entry.facts.content_bytes}'
        for entry in entries
        if entry.facts is not None
        for table in entry.tables
    ]
    nothing = ", ".join(f"NULL::{ALL[column]} AS {name(column)}" for column in names)
    return f"({' UNION ALL '.join(parts) or f'SELECT {nothing} WHERE false'})"


class Reached(NamedTuple):
    """How far a search came."""

    rows: int = 0
    stopped_ns: int | None = None
    """The latest time of what was not searched, if the budget ended the search."""
    skipped: bool = False
    """Something was left out, since it could not matter."""
    unread_bytes: int = 0
    """Bytes on disk of segments without rows, or that could not be read."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing in the answer."""
        return self.stopped_ns is None and self.unread_bytes == 0


class Search:
    """The rows of a question in some segments, as one relation: ``relation`` with its ``values``."""

    def __init__(self, cursor: DuckDBPyConnection, question: Question, entries: Sequence[Entry]) -> None:
        self.cursor, self.question = cursor, question
        self.entries = question.chosen(entries)
        self.values: Values = {}
        self.relation = ""
        self.reached = Reached()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the answer to a statement, in which ``{rows}`` is the relation."""
        return self.cursor.execute(sql.format(rows=f"({self.relation})"), self.values).fetchall()

    def run(
        self,
        shape: Mapping[str, tuple[str, str]],
        found: Found,
        *,
        are_columns: bool = True,
        forward: bool = False,
        enough: int | None = None,
        more: Callable[[Values], str] | None = None,
    ) -> None:
        """Make the relation. ``shape``: SQL over columns, and type, of each member; ``found``: the same of a record.

        ``are_columns``: columns have all that the members need. ``enough``: this many of the first rows are wanted.
        ``more``: SQL of a further condition.
        """
        rows = [entry for entry in self.entries if entry.facts is not None and (entry.file or entry.tables)]
        decided, is_all = self.question.decided(self.values)
        within = self.question.within(self.values)
        further = more(self.values) if more is not None else "true"
        by_lines = not (is_all and are_columns)
        missing = sum(entry.disk_bytes if entry.facts is None else entry.unread_bytes for entry in self.entries)
        self.reached = Reached(sum(one.facts.rows for one in rows if one.facts is not None), unread_bytes=missing)
        members = ", ".join(f"{sql} AS {member}" for member, (sql, _) in shape.items())
        parts = []
        if not by_lines:
            where = f"NOT odd AND {decided} AND {within} AND {further}"
            parts.append(f"SELECT {members} FROM {source(rows, members + where)} WHERE {where}")
        looked = rows if by_lines else [one for one in rows if one.facts is not None and one.facts.odd]
        if looked:
            columns = ", ".join(f"{member} {kind}" for member, (_, kind) in shape.items())
            self.cursor.execute(f"CREATE OR REPLACE TEMP TABLE checked ({columns})")
            parts.append("SELECT * FROM checked")
            conditions = (
                f"(odd OR ({decided})) AND {within} AND {further}" if by_lines else f"odd AND {within} AND {further}"
            )
            self._look(looked, conditions, shape, found, forward, enough)
        if by_lines:
            self.values = {}
        self.relation = " UNION ALL ".join(parts) or f"SELECT {members} FROM {source([], members)}"
        if not parts:
            self.values = {}
        if self.reached.rows <= _FEW:
            self.cursor.execute(f"CREATE OR REPLACE TEMP TABLE few AS {self.relation}", self.values)
            self.relation, self.values = "SELECT * FROM few", {}

    def _look(
        self,
        entries: Sequence[Entry],
        conditions: str,
        shape: Mapping[str, tuple[str, str]],
        found: Found,
        forward: bool,
        enough: int | None,
    ) -> None:
        """Read lines of segments, in the order of time, into the table of what was found."""
        order = sorted(entries, key=lambda entry: _ends(entry)[0] if forward else -_ends(entry)[1])
        best = _Best(enough, forward)
        is_first = True
        for at, entry in enumerate(order):
            if best.is_past(_ends(entry)):
                self.reached = self.reached._replace(skipped=True)
                continue
            if not is_first and time.monotonic() >= self.question.deadline_s:
                self._stop(max(_ends(one)[1] for one in order[at:]))
                return
            stopped_ns = self._look_into(entry, conditions, shape, found, forward, best, is_first)
            is_first = False
            if stopped_ns is not None:
                self._stop(max([stopped_ns, *(_ends(one)[1] for one in order[at + 1 :])]))
                return

    def _stop(self, at_ns: int) -> None:
        self.reached = self.reached._replace(stopped_ns=at_ns)

    def _look_into(
        self,
        entry: Entry,
        conditions: str,
        shape: Mapping[str, tuple[str, str]],
        found: Found,
        forward: bool,
        best: _Best,
        is_first: bool,
    ) -> int | None:
        """Read lines of one segment; return the time of the first one that was not read, if the budget has ended."""
        order = "" if forward else "DESC"
        used = {parameter: value for parameter, value in self.values.items() if f"${parameter}" in _words(conditions)}
        places = self.cursor.execute(
            f"SELECT {_PLACE} FROM {source([entry], _PLACE + conditions)} WHERE {conditions} "
            f"ORDER BY 1 {order}, 2 {order}",
            used,
        ).fetchall()
        if not places:
            return None
        opened = entry.open()
        if opened is None or entry.facts is None:
            self.reached = self.reached._replace(unread_bytes=self.reached.unread_bytes + entry.disk_bytes)
            return None
        # A compressed segment has no middle: it is read once.
        step = len(places) if opened.identity.compressed else _LINES_AT_ONCE
        with opened:
            for begin in range(0, len(places), step):
                block = places[begin : begin + step]
                if begin > 0 or not is_first:
                    if best.is_past((block[-1][0], block[0][0]) if not forward else (block[0][0], block[-1][0])):
                        self.reached = self.reached._replace(skipped=True)
                        return None
                    if time.monotonic() >= self.question.deadline_s:
                        return int(max(moment for moment, _, _ in places[begin:]))
                block.sort(key=lambda place: place[1])
                rows = []
                lines = opened.at([(offset, length) for _, offset, length in block])
                for (moment, offset, _), line in zip(block, lines, strict=True):
                    record = read(line, entry.facts.resource)
                    if record is not None and line is not None and self.question.holds(line, record):
                        rows.append(found(record, moment, entry.name, offset))
                        best.add(moment)
                _insert(self.cursor, shape, rows)
        return None


class _Best:
    """The times of the first rows that a page has: what is past them is not looked for."""

    def __init__(self, enough: int | None, forward: bool) -> None:
        self._enough, self._sign = enough, -1 if forward else 1
        self._heap: list[int] = []

    def add(self, moment: int) -> None:
        import heapq

        if self._enough is None:
            return
        if len(self._heap) < self._enough:
            heapq.heappush(self._heap, moment * self._sign)
        else:
            heapq.heappushpop(self._heap, moment * self._sign)

    def is_past(self, times: tuple[int, int]) -> bool:
        """Return whether nothing within these times can be among the first."""
        if self._enough is None or len(self._heap) < self._enough:
            return False
        nearest = times[1] if self._sign > 0 else -times[0]
        return nearest < self._heap[0]


def read(line: bytes | None, resource: Mapping[str, str]) -> Record | None:
    """Return the record of a line with what its segment gives to each; None if it is none."""
    if line is None:
        return None
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return with_derived(record, dict(resource)) if isinstance(record, dict) else None


def _insert(cursor: DuckDBPyConnection, shape: Mapping[str, tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
    if not rows:
        return
    structure = orjson.dumps([{member: kind for member, (_, kind) in shape.items()}]).decode()
    content = orjson.dumps([dict(zip(shape, row, strict=True)) for row in rows]).decode()
    cursor.execute(
        f"INSERT INTO checked SELECT unnest(from_json($rows, '{structure}'), recursive := true)", {"rows": content}
    )


def _ends(entry: Entry) -> tuple[int, int]:
    return (entry.facts.first_ns, entry.facts.last_ns) if entry.facts is not None else (0, 0)


def _words(sql: str) -> set[str]:
    return set(re.findall(r"\$v\d+", sql))
