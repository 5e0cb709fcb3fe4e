"""Indexes by day as a destination, by the bulk API: each record is created once under an id of its own.

A server answers for each document of a request. One that is there already has arrived. One whose content the mapping
cannot take is refused and counted. All others are sent again, those of a full queue (429) or of a shard that is away
(503) too, while the rest has arrived.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from inference_logging.ship.http import Answer, AnswerError, ask, open_client
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.opensearch.documents import action
from inference_logging.ship.opensearch.place import Place
from inference_logging.ship.opensearch.template import template

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
            return Sent(lines, f"{type(error).__name__}: {error}", type(error).__name__)

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
            half = len(lines) // 2
            return self._create(lines[:half]).joined(self._create(lines[half:]))
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
