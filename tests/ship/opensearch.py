"""A real OpenSearch of one node, and the documents in its indexes; and a server that answers in the place of one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx
import orjson

from inference_logging.read.segments.columns import OTHER, RESOURCE
from inference_logging.ship.opensearch import RENAMED
from tests.kit.servers import free_port
from tests.ship.endpoint import HttpServer
from tests.ship.programs import Program, installed
from tests.tools.tools import tool

INDEX: Final = "inference-logs"
_SERVER: Final = Path(__file__).with_name("OpenSearch.java")
_SETTINGS: Final = {
    "transport.port": "0",
    # A disk that others fill is no subject of the tests.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
_JAVA: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")
_PAGE: Final = 5000
_NOT_YET: Final = 503


class OpenSearch(Program):
    """The server; its data is in ``folder``. ``settings`` are further ones of a node."""

    def __init__(self, folder: Path, **settings: str) -> None:
        jars, java = f"{tool('opensearch')}/*", installed("java", "default-jdk-headless")
        installed("javac", "default-jdk-headless")
        folder.mkdir()
        self.port = free_port()
        named = (f"{name}={value}" for name, value in {**_SETTINGS, **settings}.items())
        command: list[str | Path] = [java, *_JAVA, "-cp", jars, _SERVER, folder, str(self.port), *named]
        super().__init__(command, folder / "said", self._answers)

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def to(self) -> str:
        """What ``ship_to`` says."""
        return f"opensearch+{self.url}/{INDEX}"

    def _answers(self) -> bool:
        try:
            # Once its indexes can be written again.
            answer = httpx.get(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s")
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """Return the JSON of an answer; one that is no success fails the test."""
        answer = httpx.request(method, f"{self.url}/{path}", json=content, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def count(self, query: Mapping[str, Any], index: str = f"{INDEX}*") -> int:
        """Return how many documents a query finds; none where the index is only just being made."""
        self.ask("POST", f"{index}/_refresh")
        answer = httpx.post(f"{self.url}/{index}/_count", json={"query": query}, timeout=60)
        return int(answer.json()["count"]) if answer.status_code != _NOT_YET else 0

    def documents(self, index: str = f"{INDEX}*") -> list[dict[str, Any]]:
        """Return all documents as they were sent, each with its ``_index`` and ``_id``."""
        self.ask("POST", f"{index}/_refresh")
        found: list[dict[str, Any]] = []
        page = self.ask("POST", f"{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            found += [{**hit["_source"], "_index": hit["_index"], "_id": hit["_id"]} for hit in hits]
            page = self.ask("POST", "_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        return found


def as_record(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that our document was made from."""
    left_out = {*RESOURCE, "segment", "offset", OTHER, "_index", "_id"}
    names = {name: given for given, name in RENAMED.items()}
    own = {names.get(name, name): value for name, value in document.items() if name not in left_out}
    return {**own, **document.get(OTHER, {})}


THERE: Final = (409, "version_conflict_engine_exception", "document already exists")
BUSY: Final = (429, "rejected_execution_exception", "rejected execution of primary operation")


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    parameters: dict[str, str]
    headers: dict[str, str]
    content: list[Any]

    def offsets(self) -> list[int]:
        """Return the places of the documents of a bulk request."""
        return [document["offset"] for document in self.content[1::2]]


class Server(HttpServer):
    """Answers bulk requests by turns, then with success; ``items`` are the results of single documents, by place."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self.items: dict[int, tuple[int, str, str]] = {}
        self.requests: list[Request] = []
        self.templates: dict[str, Any] = {}
        self.most_bytes = 1 << 20
        super().__init__(context=context)
        scheme = "http" if context is None else "https"
        self.url = f"opensearch+{scheme}://127.0.0.1:{self.server.server_port}/logs"

    def respond(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        parts = urlsplit(path)
        lines = [orjson.loads(line) for line in content.splitlines()]
        asked = Request(method, parts.path, dict(parse_qsl(parts.query)), headers, lines)
        self.requests.append(asked)
        return self.answer(asked, len(content))

    def answer(self, asked: Request, content_bytes: int) -> tuple[int, bytes, dict[str, str]]:
        """Return status, content and headers."""
        if "_index_template" in asked.path:
            name = asked.path.rpartition("/")[2]
            if asked.method == "GET":
                return (200, b"{}", {}) if name in self.templates else (404, error("resource_not_found_exception"), {})
            self.templates[name] = asked.content[0]
            return 200, b"{}", {}
        if self.answers:
            return self.answers.pop(0)
        if content_bytes > self.most_bytes:
            return 413, b"<html>", {}
        results = [self.items.get(offset, (201, "", "")) for offset in asked.offsets()]
        items = [
            {"create": {"status": status, **({"error": {"type": kind, "reason": reason}} if kind else {})}}
            for status, kind, reason in results
        ]
        return 200, orjson.dumps({"items": items}), {}

    def bulks(self) -> list[Request]:
        """Return the bulk requests."""
        return [request for request in self.requests if request.path.endswith("/_bulk")]


def error(kind: str) -> bytes:
    return orjson.dumps({"error": {"type": kind, "reason": "words"}, "status": 0})
