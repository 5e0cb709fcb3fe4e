"""A real OpenSearch of one node, the documents in its indexes, and a wire that loses answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from inference_logging.segments.columns import RESOURCE
from inference_logging.shipping.opensearch.template import RENAMED
from inference_logging.shipping.rows import OTHER
from tests.servers import free_port
from tests.shipping.programs import Program, installed
from tests.support import wait_until
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


class Wire:
    """A port before a server's, which loses the answer to a request when it is asked to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loses, self.has_lost, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._accepts = threading.Thread(target=self._accept)
        self._held: list[socket.socket] = []

    def __enter__(self) -> Wire:
        self._accepts.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepts.join()
        self.break_off()

    def lose_an_answer(self) -> None:
        """Wait until a request is done whose answer does not come."""
        self.has_lost.clear()
        self._loses.set()
        wait_until(self.has_lost.is_set, "an answer to be lost")

    def break_off(self) -> None:
        """Break the connections whose answers were lost."""
        while self._held:
            _shut(self._held.pop())

    def _accept(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    _shut(client)
                    continue
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while block := one.recv(1 << 16):
                if is_answer and self._loses.is_set():
                    self._loses.clear()
                    self._held.append(other)
                    self.has_lost.set()
                    return
                other.sendall(block)
        if other not in self._held:
            _shut(other)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def as_record(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that our document was made from."""
    left_out = {*RESOURCE, "segment", "offset", OTHER, "_index", "_id"}
    names = {name: given for given, name in RENAMED.items()}
    own = {names.get(name, name): value for name, value in document.items() if name not in left_out}
    return {**own, **document.get(OTHER, {})}
