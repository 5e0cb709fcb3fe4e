"""Indexes of OpenSearch or Elasticsearch by day as a destination, by the bulk API: each record is created once.

A server answers for each document of a request. One that is there already has arrived. One whose content the mapping
cannot take is refused and counted. All others are sent again, those of a full queue (429) or of a shard that is away
(503) too, while the rest has arrived. The index is that of the record's day and the id that of the record, so that a
record which is sent again, whenever and by any shipper, is one document.

Fields that the index template does not name are kept and not indexed (``dynamic: false``), so that what an application
names its fields cannot fill the mapping. The names are those of records. The text of a request's body is the one
exception: an index cannot have it at ``http.request.body``, as its size stands below that name.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from inference_logging.read.segments.columns import COLUMNS, OTHER
from inference_logging.ship.http import Answer, AnswerError, ask, open_client
from inference_logging.ship.line import Line, Sent, in_halves


class Place(NamedTuple):
    """Where a server is asked, and the indexes of the records."""

    url: str
    """Without a slash at its end."""
    name: str
    """What stands before the day in the name of each index; also the name of the index template."""
    has_template: bool = True
    """Whether the index template is made where it is missing."""

    @classmethod
    def parse(cls, to: str) -> Place:
        """Read a ``ship_to`` of this kind, whose form the configuration has checked."""
        parts = urlsplit(to.partition("+")[2])
        path, _, index = parts.path.rpartition("/")
        return cls(f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}", index, parts.query != "template=none")


VERSION: Final = 1
"""Raised with each change of the mapping."""
RENAMED: Final[Mapping[str, str]] = {"http.request.body": "http.request.body.text"}
MESSAGES: Final = (
    "gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages",
)  # fmt: skip
"""Captured texts."""

_KEPT: Final = {"type": "object", "enabled": False}
"""Any value, which is neither parsed nor indexed."""
_WORDS: Final = {"type": "match_only_text"}
_OF_DUCKDB: Final[Mapping[str, Mapping[str, Any]]] = {
    "TIMESTAMP": {"type": "date_nanos"},
    # A longer value is kept, and is not found.
    "VARCHAR": {"type": "keyword", "ignore_above": 1024},
    "VARCHAR[]": {"type": "keyword", "ignore_above": 1024},
    "BIGINT": {"type": "long"},
    "UBIGINT": {"type": "unsigned_long"},
    # One for each chunk: only for who reads the record.
    "BIGINT[]": _KEPT,
    "DOUBLE": {"type": "double"},
    "BOOLEAN": {"type": "boolean"},
    "JSON": _KEPT,
}
_OTHERWISE: Final[Mapping[str, Mapping[str, Any]]] = {
    "message": _WORDS,
    "exception.message": _WORDS,
    "exception.stacktrace": _KEPT,
    "http.request.body": _KEPT,
    **dict.fromkeys(MESSAGES, _KEPT),
}
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Other shippers add it.
    "@timestamp": {"type": "date_nanos"},
    **{
        RENAMED.get(name, name): _OTHERWISE.get(name, _OF_DUCKDB[kind])
        for name, kind in {**COLUMNS, **dict.fromkeys(MESSAGES, "JSON"), OTHER: "JSON"}.items()
    },
    "segment": {"type": "keyword"},
    "offset": {"type": "long", "index": False},
}
"""Name and mapping of each field."""


def template(index: str) -> dict[str, Any]:
    """Return the template of ``index`` by day, and of one without a day, which other shippers write to."""
    return {
        "index_patterns": [index, f"{index}-*"],
        # Two templates whose patterns overlap must differ in it; the longer name is the more exact one.
        "priority": 100 + len(index),
        "version": VERSION,
        "template": {
            "settings": {
                "index.codec": "best_compression",
                "index.refresh_interval": "5s",
                # Other shippers may send a value that is not of its type: it is kept, and is not found.
                "index.mapping.ignore_malformed": True,
            },
            "mappings": {"dynamic": False, "properties": FIELDS},
        },
        "_meta": {"description": "Records of inference-logging"},
    }


def text(place: Place) -> str:
    """Return it for an administrator, who may alter it before the first delivery."""
    return orjson.dumps(template(place.name), option=orjson.OPT_INDENT_2).decode() + "\n"


def action(line: Line, index: str) -> bytes:
    """Return a record as two lines of a bulk request: where it goes, and its document; nothing of it is left out."""
    document = line.row()
    other = document.pop(OTHER, {})
    document |= {name: other[name] for name in MESSAGES if name in other}
    document |= {name: document.pop(given) for given, name in RENAMED.items() if given in document}
    if rest := {name: value for name, value in other.items() if name not in MESSAGES}:
        document[OTHER] = rest
    day = str(document["timestamp"])[:10].replace("-", ".")
    head = {"create": {"_index": f"{index}-{day}", "_id": identity(line)}}
    return orjson.dumps(head) + b"\n" + orjson.dumps(document) + b"\n"


def identity(line: Line) -> str:
    """Return the id of a record's document: queue, process and number; of one without a number, its place."""
    boot_id, pid, seq = (line.record.get(name) for name in ("boot_id", "pid", "seq"))
    if isinstance(boot_id, str) and len(boot_id) <= 64 and isinstance(pid, int) and isinstance(seq, int):
        return f"{boot_id}-{pid}-{seq}"
    return f"{line.segment}:{line.offset}"


REFUSED: Final = frozenset(
    {"mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping_exception"}
)
"""Errors that a document is the cause of: it cannot be read as the mapping says."""
_TOO_LONG: Final = "immense term"
"""So Lucene says of a document with a value that is too long to be indexed; the error's type has other causes too."""
_THERE: Final = 409
_BAD: Final = 400
_TOO_LARGE: Final = 413
_ANSWER: Final = "items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
"""What is wanted of an answer."""


class IndexDestination:
    """The indexes of a server, and their template, which is made before the first delivery where it is missing."""

    def __init__(self, place: Place, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None) -> None:
        """Prepare a client; it connects when it has something to send."""
        self._place = place
        self._client = open_client(
            "shipping to OpenSearch or Elasticsearch", timeout_s=timeout_s, headers=headers, ca_file=ca_file
        )
        self._is_prepared = not place.has_template

    def send(self, lines: Sequence[Line]) -> Sent:
        """Create all of them in one request."""
        import httpx

        try:
            if not self._is_prepared:
                self._prepare()
            return self._create(lines)
        except AnswerError as error:
            return Sent(lines, str(error), error.kind, error.retry_after_s)
        except (httpx.HTTPError, OSError) as error:
            return Sent.failing(lines, error)

    def convert(self, line: Line) -> bytes:
        """Return the two lines of a document."""
        return action(line, self._place.name)

    def _prepare(self) -> None:
        """Make the template, unless there is one of that name. Raises as ``_ask``."""
        path = f"_index_template/{self._place.name}"
        try:
            self._ask("GET", path, {})
        except AnswerError as error:
            if error.status != 404:
                raise
            # One that another shipper has made meanwhile stays, and this one looks again.
            self._ask("PUT", path, {"create": "true"}, orjson.dumps(template(self._place.name)))
        self._is_prepared = True

    def _create(self, lines: Sequence[Line]) -> Sent:
        """Send a request; one that is too large is halved until the record that is the cause is alone."""
        content = gzip.compress(b"".join(map(self.convert, lines)), compresslevel=1)
        try:
            answer = self._ask("POST", "_bulk", {"filter_path": _ANSWER}, content, {"Content-Encoding": "gzip"})
        except AnswerError as error:
            if error.status != _TOO_LARGE:
                raise
            if len(lines) == 1:
                return Sent().refuse(lines[0], error.kind, str(error))
            return in_halves(lines, self._create)
        try:
            results = [item["create"] for item in orjson.loads(answer.content)["items"]]
            return _sorted(lines, [(int(one["status"]), one.get("error", {})) for one in results])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"status {answer.status_code}: the answer is not one to a bulk request: {answer.text[:200]}"
            return Sent(lines, text, type(error).__name__)

    def _ask(
        self, method: str, path: str, parameters: Mapping[str, str], content: bytes = b"", headers: Any = None
    ) -> Answer:
        """Return a successful answer. Raises ``AnswerError``, and what the client raises."""
        answer = ask(
            self._client,
            method,
            f"{self._place.url}/{path}",
            params=parameters,
            content=content,
            headers={"Content-Type": "application/x-ndjson" if path == "_bulk" else "application/json"}
            | (headers or {}),
        )
        if not answer.is_success:
            raise _error(answer)
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _error(answer: Answer) -> AnswerError:
    """Return the error with type and reason of its JSON, if it is that."""
    try:
        error = answer.json()["error"]
        kind, reason = str(error["type"]), str(error.get("reason", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        kind, reason = str(answer.status_code), answer.text.strip()
    return AnswerError(answer, kind, f"{kind}: {reason[:300]}")


def _sorted(lines: Sequence[Line], results: Sequence[tuple[int, Mapping[str, Any]]]) -> Sent:
    """Return which of them failed and which are refused. Raises ValueError if there is not one result for each."""
    sent, failed = Sent(), []
    for line, (status, error) in zip(lines, results, strict=True):
        if status in (200, 201, _THERE):
            continue
        kind = str(error.get("type", status))
        reasons = " ".join(str(one.get("reason", "")) for one in (error, error.get("caused_by") or {}))
        if status == _BAD and (kind in REFUSED or _TOO_LONG in reasons):
            sent.refuse(line, kind, reasons)
            continue
        failed.append(line)
        sent.error, sent.error_type = f"status {status}: {kind}: {reasons[:300].strip()}", kind
    sent.failed = failed
    return sent
