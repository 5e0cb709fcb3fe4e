"""A database of ClickHouse as a destination, over HTTP: one insert for each block, there once however often it is sent.

The server keeps the tokens of the last blocks, and leaves out a block whose token it knows, in the materialised view
too. A token is made from the places of the block's records, and a shipper that was killed sends the same block again.
What the tokens do not know any more, the key of the table does.

A table without replicas notes a token before it has the block. If it is killed in between, it takes what is sent again
for known. So after a block that may have been sent before, its rows are counted, and what is missing is sent under
another token.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson

from inference_logging.ship import clickhouse_schema as schema
from inference_logging.ship.http import Answer, AnswerError, ask, open_client
from inference_logging.ship.line import Line, Sent, in_halves

_PORTS = {"http": 8123, "https": 8443}


class Place(NamedTuple):
    """Where a server is asked, as whom, and for what."""

    url: str
    user: str | None
    database: str
    ttl_days: int | None
    """After so many days records are removed; None: never."""

    @classmethod
    def parse(cls, to: str) -> Place:
        """Read a ``ship_to`` of ClickHouse, whose form the configuration has checked."""
        parts = urlsplit(to.partition("+")[2])
        user, _, host = parts.netloc.rpartition("@")
        host = host if parts.port else f"{host}:{_PORTS[parts.scheme]}"
        days = parse_qs(parts.query).get("ttl_days")
        return cls(f"{parts.scheme}://{host}/", user or None, parts.path.strip("/"), int(days[0]) if days else None)


def row_line(line: Line) -> bytes:
    """Return the row of a record as a line of JSONEachRow, in the types of the table; nothing of it is left out."""
    made = {"event_name": "", **line.row()}
    texts = {name: orjson.dumps(made[name]).decode() for name in schema.TEXTS & made.keys()}
    return orjson.dumps({**made, **texts})


SETTINGS: Final = {
    "insert_deduplicate": "1",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    # A block of the shipper is a block of the server, which has answered once it is stored.
    "async_insert": "0",
    "input_format_parallel_parsing": "0",
    "wait_end_of_query": "1",
    "max_partitions_per_insert_block": "0",
    "date_time_input_format": "best_effort",
    # Else one fraction in two hundred differs in its last digit; it is the default of newer servers.
    "precise_float_parsing": "1",
}
REFUSED: Final = frozenset({
    6, 26, 27, 38, 41, 53, 69, 70, 72, 117, 130, 131, 190, 321, 349, 376, 395, 467, 469, 691,
})  # fmt: skip
"""Codes that a record is the cause of: it cannot be read as the column's type, or breaks a constraint."""
_TOO_LARGE: Final = 413
_OUTDATED: Final = frozenset({10, 16, 60})
"""Codes of tables or columns that are not there."""
_CODE: Final = re.compile(r"Code: (\d+)")
_NAME: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")
_FOREIGN: Final = "not_clickhouse"


class ForeignError(Exception):
    """The database has something else under a name of ours: it belongs to another program, and stays as it is."""


class ClickHouseDestination:
    """The tables of a database, which are made before the first block where they are missing."""

    def __init__(self, place: Place, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None) -> None:
        """Prepare a client; it connects when it has something to send."""
        self._place = place
        user = {"X-ClickHouse-User": place.user} if place.user else {}
        self._client = open_client(
            "shipping to ClickHouse", timeout_s=timeout_s, headers={**user, **headers}, ca_file=ca_file
        )
        self._is_prepared = False
        self._has_replicas = False
        self._in_doubt = True
        """Whether the next block may have been sent before: by this shipper, or by one that was killed."""

    def send(self, lines: Sequence[Line]) -> Sent:
        """Insert all of them as one block."""
        import httpx

        try:
            if not self._is_prepared:
                self._prepare()
            sent = self._insert(lines)
        except AnswerError as error:
            sent = Sent(lines, str(error), error.kind, error.retry_after_s)
            self._is_prepared = self._is_prepared and error.code not in _OUTDATED
        except ForeignError as error:
            sent = Sent(lines, str(error), "foreign_table")
        except (httpx.HTTPError, OSError) as error:
            sent = Sent.failing(lines, error)
        self._in_doubt = bool(sent.failed)
        return sent

    @staticmethod
    def convert(line: Line) -> bytes:
        """Return the row of a line."""
        return row_line(line)

    def _prepare(self) -> None:
        """Make what is missing. Raises as ``_ask``, and ``ForeignError``."""
        of = f"database = currentDatabase() AND name IN ({', '.join(map(_text, schema.OBJECTS))})"
        found = self._ask(f"SELECT name, engine FROM system.tables WHERE {of}", 2)
        engines = {row[0]: row[1] for row in found}
        columns = self._columns() if schema.RECORDS in engines else set(schema.COLUMNS)
        foreign = schema.foreign(engines, columns)
        if foreign is not None:
            raise ForeignError(
                f"{self._place.database}.{foreign}: exists but was not made by `ship`, so it is left alone. "
                "Name another database, or rename it"
            )
        missing = [name for name in schema.COLUMNS if name not in columns]
        if missing:
            self._send(schema.add_columns(missing).encode())
        made = schema.statements(self._place.ttl_days) if engines.keys() != set(schema.OBJECTS) else []
        for statement in [*made, *(schema.views(anew=True) if missing else ())]:
            self._send(statement.encode())
        engine = self._ask(
            f"SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = '{schema.RECORDS}'", 1
        )
        self._has_replicas = engine != [["ReplacingMergeTree"]]
        self._is_prepared = True

    def _columns(self) -> set[str]:
        """Return the names of the columns of the records' table. Raises as ``_ask``."""
        of = f"database = currentDatabase() AND table = {_text(schema.RECORDS)}"
        return {name for (name,) in self._ask(f"SELECT name FROM system.columns WHERE {of}", 1)}

    def _insert(self, lines: Sequence[Line]) -> Sent:
        """Insert a block; one that is refused is halved until the record that is the cause is alone."""
        token = _token(lines)
        try:
            self._store(lines, token)
        except AnswerError as error:
            if error.code not in REFUSED and error.status != _TOO_LARGE:
                raise
            if len(lines) == 1:
                return Sent().refuse(lines[0], error.kind, str(error))
            return in_halves(lines, self._insert)
        if self._in_doubt and not self._has_replicas:
            missing = self._missing(lines)
            if missing:
                self._store(missing, f"{token}-{_token(missing)}")
        return Sent()

    def _store(self, lines: Sequence[Line], token: str) -> None:
        content = schema.insert().encode() + b"\n".join(map(row_line, lines))
        content = gzip.compress(content, compresslevel=1)
        self._send(content, {"Content-Encoding": "gzip"}, insert_deduplication_token=token)

    def _missing(self, lines: Sequence[Line]) -> list[Line]:
        """Return which of them the table does not have. Raises as ``_ask``."""
        ends: dict[str, tuple[int, int]] = {}
        for line in lines:
            ends[line.segment] = (ends.get(line.segment, (line.offset, 0))[0], line.offset)
        places = " OR ".join(
            f"(segment = {_text(segment)} AND offset BETWEEN {first} AND {last})"
            for segment, (first, last) in ends.items()
        )
        found = self._ask(f"SELECT segment, offset FROM {schema.RECORDS} WHERE {_times(lines)} AND ({places})", 2)
        there = {(segment, int(offset)) for segment, offset in found}
        return [line for line in lines if line.place not in there]

    def _ask(self, statement: str, columns: int) -> list[list[str]]:
        """Return the rows that answer a statement. Raises ``AnswerError``, and what the client raises."""
        answer = self._post(statement.encode(), {})
        rows = [line.split("\t") for line in answer.text.split("\n") if line]
        if any(len(row) != columns for row in rows):
            raise AnswerError(answer, _FOREIGN, f"the answer is not from ClickHouse: {answer.text[:100]}")
        return rows

    def _send(self, content: bytes, headers: Mapping[str, str] | None = None, **settings: str) -> None:
        """Let the server do what has no answer. Raises as ``_ask``."""
        answer = self._post(content, headers or {}, **settings)
        if answer.content:
            raise AnswerError(answer, _FOREIGN, f"the answer is not from ClickHouse: {answer.text[:100]}")

    def _post(self, content: bytes, headers: Mapping[str, str], **settings: str) -> Answer:
        parameters = {"database": self._place.database, **SETTINGS, **settings}
        answer = ask(self._client, "POST", self._place.url, params=parameters, content=content, headers=headers)
        code = answer.headers.get("X-ClickHouse-Exception-Code")
        if answer.is_success and code is None:
            return answer
        found = _CODE.match(answer.text)
        number = code if code is not None and code.isdecimal() else found[1] if found else 0
        name = _NAME.search(answer.text)
        kind = name[1] if name else str(int(number) or answer.status_code)
        raise AnswerError(answer, kind, answer.text.strip()[:300], int(number))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _token(lines: Sequence[Line]) -> str:
    """Return what a block is known by: the same for the same records, whenever and by whomever they are sent."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line.segment}:{line.offset}\n".encode())
    return digest.hexdigest()


def _times(lines: Sequence[Line]) -> str:
    """Return the condition that a row has a time of these lines: by it the server finds their place."""
    nanos = [line.unix_nano() for line in lines]
    if 0 in nanos:
        return "1"
    first, last = (f"fromUnixTimestamp64Nano({end}, 'UTC')" for end in (min(nanos), max(nanos)))
    return f"timestamp BETWEEN {first} AND {last}"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
