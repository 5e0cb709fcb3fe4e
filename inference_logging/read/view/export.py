"""Files of what is seen: a table, or a file of a format of `inference-logging export`, each with its statement.

A file is made whole before its first byte is sent, in a file of its own without a name, so that its statement can stand
in the answer's header and a failure is an error and no cut file.
"""

from __future__ import annotations

import csv
import io
import re
import secrets
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import orjson

from inference_logging.read.export.formats import KINDS, Options, writer
from inference_logging.read.export.prompts import KEY_BYTES, Prefixes
from inference_logging.read.export.requests import requests_of
from inference_logging.read.export.run import fill
from inference_logging.read.export.spool import Spool
from inference_logging.read.export.statement import Books, Requests, Statement
from inference_logging.read.segments import Record, Segment, segments
from inference_logging.read.table.table import Table
from inference_logging.read.times import stamp
from inference_logging.read.view import queries
from inference_logging.read.view.queries import Query, QueryError, pages, records_of
from inference_logging.read.view.record import Records, span_ns

MOST_REQUESTS: Final = 200_000
"""Of one file; the statement says so where there are more."""
MOST_ROWS: Final = 1_000_000
"""Of one table."""
MOST_CHUNKS: Final = 1_000_000
_IN_MEMORY_BYTES: Final = 8 << 20
_BYTES_PER_TOKEN: Final = 4.0

FORMATS: Final = ("csv", *KINDS)
_MEDIA: Final = {
    "csv": ("text/csv; charset=utf-8", "csv"),
    "perfetto": ("application/json", "json"),
    "sharegpt": ("application/json", "json"),
    "parquet": ("application/vnd.apache.parquet", "parquet"),
}
_LINES: Final = ("application/x-ndjson", "jsonl")
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\r\n]")
"""A table's program would compute a text that begins like this; some take full-width signs for the usual ones."""
_COLUMNS: Final = (
    "timestamp", "event_name", "outcome", "http.response.status_code", "duration_s",
    "gen_ai.response.time_to_first_chunk", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "http.route",
    "gen_ai.request.model", "tenant.id", "k8s.pod.name", "trace_id", "request_id",
)  # fmt: skip


def known_format(name: str) -> str:
    """Return the name of a format. Raises ``QueryError``."""
    if name not in FORMATS:
        raise QueryError(f"format={name[:80]!r}: must be one of {', '.join(FORMATS)}")
    return name


class Made(NamedTuple):
    """A file, the statement that belongs to it, and how a browser stores it."""

    file: IO[bytes]
    bytes: int
    statement: dict[str, Any]
    media_type: str
    name: str


class Exports:
    """Makes files of what an index finds."""

    def __init__(self, index: Table, records: Records, directories: Sequence[Path]) -> None:
        self._index, self._records, self._directories = index, records, directories

    def make(self, form: str, query: Query, books: Mapping[str, Any], given_up: threading.Event) -> Made:
        """Return a file of a known format. Raises ``QueryError``, ``GoneError``, ``MissingExtraError``, OSError."""
        file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by who sends it
        try:
            if form == "csv":
                statement = self._table(query, file, given_up)
            else:
                statement = self._requests(form, query, file, books, given_up)
            size = file.tell()
            file.seek(0)
        except BaseException:
            file.close()
            raise
        media_type, ending = _MEDIA.get(form, _LINES)
        return Made(file, size, statement, media_type, f"inference-logging-{form}.{ending}")

    def _table(self, query: Query, file: IO[bytes], given_up: threading.Event) -> dict[str, Any]:
        """Write the rows as they are seen, the columns as chosen; return how many there are."""
        columns = query.get("fields") or list(_COLUMNS)
        file.write(_lines_of([columns]))
        number, is_complete, following = 0, True, None
        for rows, answer in pages(self._index, {**query, "fields": columns}, MOST_ROWS, given_up):
            file.write(_lines_of([[_value(row, name) for name in columns] for row in rows]))
            number += len(rows)
            following = answer.get("next")
            is_complete = is_complete and answer.get("complete", True)
        limit = [f"a table has at most {MOST_ROWS:,} rows"] if following is not None else []
        return {
            "format": "csv",
            "rows": number,
            "complete": is_complete and not limit,
            "faults": limit + ([] if is_complete else ["the search ended early"]),
            "conditions": _conditions(query),
        }

    def _requests(
        self, form: str, query: Query, file: IO[bytes], books: Mapping[str, Any], given_up: threading.Event
    ) -> dict[str, Any]:
        made = writer(form, Options(Prefixes(secrets.token_bytes(KEY_BYTES), KINDS[form], _BYTES_PER_TOKEN), False))
        counted = Requests()
        faults: list[str] = []
        with Spool() as spool:
            fill(spool, requests_of(self._in_order(query, faults, given_up)), made, counted)
            made.write(spool.rows(), file)
        error = books["books_error"] or ("" if books["books"] is not None else "verify has not ended yet")
        account = Books(books["books"] or {}, error)
        faults += account.faults("", self._segments())
        source = ", ".join(map(str, self._directories))
        statement = Statement(form, source, _conditions(query), counted, account, faults)
        return statement.as_json()

    def _segments(self) -> list[Segment]:
        """Return all segments: a fault of any of them concerns what was read."""
        return [segment for directory in self._directories if directory.is_dir() for segment in segments(directory)]

    def _in_order(self, query: Query, faults: list[str], given_up: threading.Event) -> Iterator[Record]:
        """Iterate over the requests of a query, each after its chunks, with the resource of its segment."""
        wanted: Query = {**query, "events": ["request"], "fields": ["request_id"], "order": "oldest"}
        following = None
        for rows, answer in pages(self._index, wanted, MOST_REQUESTS, given_up):
            records = records_of(self._index, rows)
            following = answer.get("next")
            yield from self._chunks(records, given_up)
            for record in records:
                yield {**self._records.resource(record.pop("key")), **record}
            if not answer.get("complete", True):
                faults.append("the search ended early")
        if following is not None:
            faults.append(f"a file has at most {MOST_REQUESTS:,} requests")

    def _chunks(self, records: Sequence[Record], given_up: threading.Event) -> Iterator[Record]:
        """Iterate over the chunk records of requests that have no list of gaps."""
        ids = {one.get("request_id") for one in records if (one.get("chunks") or 0) > 1 and "chunk_gaps_us" not in one}
        if not ids:
            return
        spans = [span_ns(one) for one in records if one.get("request_id") in ids]
        span = {"from_ns": max(0, min(begin for begin, _ in spans)), "to_ns": max(end for _, end in spans) + 1}
        wanted = {**span, "events": ["request.chunk"], "order": "oldest", "fields": ["request_id"]}
        for rows, _ in pages(self._index, wanted, MOST_CHUNKS, given_up):
            yield from records_of(self._index, [row for row in rows if row.get("request_id") in ids])


def _conditions(query: Query) -> dict[str, Any]:
    return {name: value for name, value in query.items() if name not in ("budget_s", "fields", "limit", "after")}


def _value(row: Mapping[str, Any], name: str) -> Any:
    return stamp(int(row["timestamp_ns"])) if name == "timestamp" else row.get(name)


def _lines_of(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[_cell(value) for value in row] for row in rows])
    return text.getvalue().encode("utf-8", "surrogatepass")


def _cell(value: Any) -> str:
    """Return a value as a cell that no table's program computes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # a negative number is a number
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return f"'{text}" if _FORMULA.match(text) else text


def archive(made: Made) -> Made:
    """Return a file and its statement, together in a ZIP archive."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by who sends it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        with zipped.open(made.name, "w", force_zip64=True) as member:
            for block in content(made):
                member.write(block)
        zipped.writestr("statement.json", orjson.dumps(made.statement, option=orjson.OPT_INDENT_2))
    size = file.tell()
    file.seek(0)
    return Made(file, size, made.statement, "application/zip", f"{made.name}.zip")


def content(made: Made) -> Iterator[bytes]:
    """Iterate over a file's content, and close it."""
    with made.file as file:
        while block := file.read(queries.LONGEST_QUERY_BYTES * 8):
            yield block
