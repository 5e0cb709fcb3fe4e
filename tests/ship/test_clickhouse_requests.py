"""What is asked of ClickHouse, and what its answers mean; the engine itself is in test_clickhouse.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from inference_logging.ship.clickhouse import Place
from inference_logging.ship.clickhouse_schema import COLUMNS, OBJECTS, statements
from inference_logging.ship.line import Destination, Line
from tests.kit.segment_files import log
from tests.kit.servers import free_port
from tests.ship.endpoint import HttpServer

Open = Callable[..., Destination]
NAME: Final = "svc-20261121T050000.000Z-00000000deadbeef-000001.jsonl"
CODE: Final = "X-ClickHouse-Exception-Code"


class Request(NamedTuple):
    """What was asked."""

    settings: dict[str, str]
    headers: dict[str, str]
    statement: str

    def offsets(self) -> list[int]:
        """Return the places of the rows of an insert."""
        return [orjson.loads(row)["offset"] for row in self.statement.splitlines()[1:]]


class Server(HttpServer):
    """Answers inserts by turns, then with success; questions of its tables by what it is given."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, dict[str, str]]] = []
        self.refuses: Callable[[Request], bool] = lambda _: False
        self.requests: list[Request] = []
        self.objects = set(OBJECTS)
        self.engine = "ReplacingMergeTree"
        self.engines: dict[str, str] = {}
        self.columns = list(COLUMNS)
        self.rows = ""
        super().__init__()
        self.url = f"clickhouse+http://shipper@127.0.0.1:{self.server.server_port}/logs"

    def respond(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        settings = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        request = Request(settings, headers, content.decode())
        self.requests.append(request)
        status, text, more = self.answer(request)
        return status, text.encode(), more

    def answer(self, request: Request) -> tuple[int, str, dict[str, str]]:
        """Return status, text and headers."""
        if request.statement.startswith("SELECT name, engine"):
            return 200, "".join(f"{name}\t{self.engines.get(name, 'View')}\n" for name in self.objects), {}
        if request.statement.startswith("SELECT name FROM system.columns"):
            return 200, "".join(f"{name}\n" for name in self.columns), {}
        if request.statement.startswith("SELECT engine"):
            return 200, f"{self.engine}\n", {}
        if request.statement.startswith("SELECT segment, offset"):
            return 200, self.rows, {}
        if request.statement.startswith("INSERT") and self.refuses(request):
            return 500, "Code: 469. DB::Exception: Constraint `c` is violated. (VIOLATED_CONSTRAINT)", {}
        if request.statement.startswith("INSERT") and self.answers:
            return self.answers.pop(0)
        return 200, "", {}

    def inserts(self) -> list[Request]:
        """Return the inserts."""
        return [request for request in self.requests if request.statement.startswith("INSERT")]


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    yield served
    served.close()


def lines(*numbers: int) -> list[Line]:
    return [Line("svc", NAME, at, b"", log(at, f"m{at}"), {"service.name": "svc"}) for at in numbers]


def rows(*numbers: int) -> str:
    return "".join(f"{NAME}\t{at}\n" for at in numbers)


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("clickhouse+http://127.0.0.1/logs", Place("http://127.0.0.1:8123/", None, "logs", None)),
        ("clickhouse+https://me@a.example:9/x?ttl_days=30", Place("https://a.example:9/", "me", "x", 30)),
        ("clickhouse+https://[::1]/x", Place("https://[::1]:8443/", None, "x", None)),
    ],
)
def test_a_place_has_a_server_a_user_a_database_and_a_time_to_live(to: str, place: Place) -> None:
    assert Place.parse(to) == place


def test_a_block_is_one_insert_with_a_token_and_the_password_is_a_header(
    server: Server, opened: Open, tmp_path: Path
) -> None:
    (tmp_path / "headers").write_text("X-ClickHouse-Key: s3cret\n")
    destination = opened(ship_to=server.url, ship_headers_file=tmp_path / "headers")
    server.rows = rows(1, 2)
    assert not destination.send(lines(1, 2)).failed
    assert not destination.send(lines(1, 2)).failed
    assert not destination.send(lines(1)).failed
    first, again, other = server.inserts()
    assert first.headers["X-ClickHouse-User"] == "shipper"
    assert first.headers["X-ClickHouse-Key"] == "s3cret"
    assert "s3cret" not in str(first.settings)
    assert (first.settings["database"], first.settings["async_insert"]) == ("logs", "0")
    assert first.settings["deduplicate_blocks_in_dependent_materialized_views"] == "1"
    assert first.settings["precise_float_parsing"] == "1"
    assert first.offsets() == [1, 2]
    tokens = [one.settings["insert_deduplication_token"] for one in (first, again, other)]
    assert tokens[0] == tokens[1] != tokens[2]


def test_what_is_there_is_not_made_and_what_is_missing_is(server: Server, opened: Open) -> None:
    assert not opened(ship_to=server.url).send(lines(1)).failed
    assert [one.statement.split()[0] for one in server.requests[:4]] == ["SELECT", "SELECT", "SELECT", "INSERT"]
    server.requests.clear()
    server.objects -= {"requests_per_minute_feed"}
    assert not opened(ship_to=f"{server.url}?ttl_days=9").send(lines(1)).failed
    assert [one.statement for one in server.requests[2 : 2 + len(OBJECTS)]] == statements(9)


def exception(status: int, code: int, name: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    return status, f"Code: {code}. DB::Exception: Words. ({name}) (version 26.9)", headers


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (exception(403, 516, "AUTHENTICATION_FAILED"), "AUTHENTICATION_FAILED"),
        (exception(404, 81, "UNKNOWN_DATABASE"), "UNKNOWN_DATABASE"),
        (exception(500, 243, "NOT_ENOUGH_SPACE"), "NOT_ENOUGH_SPACE"),
        (exception(500, 252, "TOO_MANY_PARTS"), "TOO_MANY_PARTS"),
        (exception(200, 241, "MEMORY_LIMIT_EXCEEDED", **{CODE: "241"}), "MEMORY_LIMIT_EXCEEDED"),
        ((500, "words", {CODE: "999"}), "999"),
        ((503, "upstream", {"Retry-After": "7"}), "503"),
    ],
)
def test_an_answer_that_can_change_is_a_failure_by_its_name(
    server: Server, opened: Open, answer: Any, kind: str
) -> None:
    server.answers = [answer]
    sent = opened(ship_to=server.url).send(lines(1, 2))
    assert ([one.offset for one in sent.failed], sent.refused) == ([1, 2], {})
    assert (sent.error_type, sent.retry_after_s) == (kind, 7.0 if kind == "503" else 0.0)
    assert sent.error.startswith(f"status {answer[0]}: ")


def test_tables_that_are_gone_are_made_again(server: Server, opened: Open) -> None:
    server.answers = [(404, "Code: 60. DB::Exception: Table logs.records does not exist. (UNKNOWN_TABLE)", {})]
    destination = opened(ship_to=server.url)
    assert destination.send(lines(1)).failed
    server.objects.clear()
    server.requests.clear()
    assert not destination.send(lines(1)).failed
    assert [one.statement for one in server.requests[1 : 1 + len(OBJECTS)]] == statements()


def test_of_a_block_that_is_refused_only_the_cause_is_left_out(server: Server, opened: Open) -> None:
    server.engine = "ReplicatedReplacingMergeTree"
    server.refuses = lambda request: 3 in request.offsets()
    sent = opened(ship_to=server.url).send(lines(*range(5)))
    assert (list(sent.failed), sent.refused) == ([], {"VIOLATED_CONSTRAINT": 1})
    taken = [one.offsets() for one in server.inserts() if 3 not in one.offsets()]
    assert taken == [[0, 1], [2], [4]]
    first = [one.settings["insert_deduplication_token"] for one in server.inserts()]
    server.requests.clear()
    opened(ship_to=server.url).send(lines(*range(5)))
    assert [one.settings["insert_deduplication_token"] for one in server.inserts()] == first, "its parts, as before"


def test_a_body_that_a_proxy_finds_too_large_is_halved(server: Server, opened: Open) -> None:
    server.answers = [(413, "<html>", {})]
    sent = opened(ship_to=server.url).send(lines(1, 2))
    assert (list(sent.failed), sent.refused) == ([], {})
    server.answers = [(413, "<html>", {})]
    assert opened(ship_to=server.url).send(lines(1)).refused == {"413": 1}


def test_after_a_doubt_rows_are_counted_and_those_that_are_missing_are_sent(server: Server, opened: Open) -> None:
    destination = opened(ship_to=server.url)
    server.rows = rows(1)
    assert not destination.send(lines(1)).failed
    server.answers, server.rows = [(0, "", {})], rows(2, 4)
    server.requests.clear()
    sent = destination.send(lines(2, 3, 4))
    assert [one.offset for one in sent.failed] == [2, 3, 4]
    assert not destination.send(lines(2, 3, 4)).failed
    assert [one.offsets() for one in server.inserts()] == [[2, 3, 4], [2, 3, 4], [3]]
    tokens = [one.settings["insert_deduplication_token"] for one in server.inserts()]
    assert tokens[0] == tokens[1] != tokens[2]
    (question,) = [one.statement for one in server.requests if one.statement.startswith("SELECT")]
    assert f"(segment = '{NAME}' AND offset BETWEEN 2 AND 4)" in question
    assert "timestamp BETWEEN" in question
    server.requests.clear()
    assert not destination.send(lines(5)).failed
    assert [one.offsets() for one in server.requests] == [[5]], "without a doubt nothing is asked"


def test_a_table_with_replicas_knows_itself_what_it_has(server: Server, opened: Open) -> None:
    server.engine = "ReplicatedReplacingMergeTree"
    assert not opened(ship_to=server.url).send(lines(1)).failed
    assert [one.offsets() for one in server.inserts()] == [[1]]


def test_where_nobody_is_there_everything_failed(opened: Open) -> None:
    sent = opened(ship_to=f"clickhouse+http://127.0.0.1:{free_port()}/logs").send(lines(1))
    assert ([one.offset for one in sent.failed], sent.error_type) == ([1], "ConnectError")
