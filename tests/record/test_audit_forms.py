"""Audit records: their forms, those of requests, and SQLite that keeps them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from starlette.responses import StreamingResponse

from inference_logging import AuditError, Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging._native import LineChain
from inference_logging.metrics import InferenceLoggingCollector
from inference_logging.record.audit_sqlite import SqliteWriter, blocks_of_lines
from tests.kit.support import PARENT_ID, TRACE_ID, TRACEPARENT, read_lines, wait_until
from tests.record.audited import Open, problems, records

MANY = 3000


def audit_all(logger: Logger, *forms: tuple[str, Mapping[str, object]]) -> list[bool]:
    """Make an audit record of each form at the same time; return what each call returned."""

    async def main() -> list[bool]:
        return list(await asyncio.gather(*(logger.audit(event, **fields) for event, fields in forms)))

    return asyncio.run(main())


def test_ever_new_fields_of_one_event_leave_room_for_every_later_event(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    forms: list[tuple[str, dict[str, Any]]] = [("order", {f"label_{n}": n, "who": "bob"}) for n in range(MANY)]
    assert audit_all(logger, *forms, *((f"later_{n}", {"a": n}) for n in range(200))) == [True] * (MANY + 200)
    assert len(records(tmp_path)) == MANY + 200
    for number, record in enumerate(records(tmp_path, "order")):
        fields = record.get("attributes", record)
        assert (fields[f"label_{number}"], fields["who"]) == (number, "bob")
    assert "attributes" not in records(tmp_path, "order")[15]
    assert records(tmp_path, "later_199")[0]["a"] == 199
    assert problems(tmp_path) == []


def test_ever_new_fields_of_many_events_leave_room_for_every_later_event(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    forms = [(f"e{n % 100}", {f"label_{n}": n}) for n in range(MANY)]
    assert audit_all(logger, *forms, ("later", {"a": 1})) == [True] * (MANY + 1)
    assert records(tmp_path, "later")[0]["a"] == 1


def test_fields_in_a_map_are_what_they_are_in_a_record(open_: Open, tmp_path: Path) -> None:
    class Large(int, Enum):
        ONE = 1 << 70

    logger = open_(audit_commit_records=1000, redact_fields="password")
    audit_all(logger, *(("order", {f"label_{n}": n}) for n in range(16)))
    fields = {
        "large": Large.ONE,
        "raw": b"\xffx",
        "nested": {"a": [1]},
        "password": "hunter2",
        "timestamp": 1,
        "": None,
    }
    assert audit_all(logger, ("order", fields)) == [True]
    # An integer beyond 64 bits is its digits, since readers disagree about such numbers.
    expected = {**fields, "large": str(1 << 70), "raw": "\ufffdx", "password": "[redacted:field]"}
    assert records(tmp_path, "order")[-1]["attributes"] == expected


def test_ever_new_events_are_refused_with_a_reason_and_counted(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    assert audit_all(logger, ("known", {"a": 1})) == [True]
    with pytest.raises(AuditError, match="too_many_events") as caught:
        audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert caught.value.reason == "too_many_events"
    assert audit_all(logger, ("known", {"a": 2})) == [True]
    assert logger.stats()["audit"]["dropped"]["serialize_error"]["INFO"] > 0
    with pytest.raises(ValueError, match="schema area is full"):
        logger.event("explicit", [f"field_{number}" for number in range(50)], lane="audit")
    assert [record["a"] for record in records(tmp_path, "known")] == [1, 2]


def test_ever_new_events_are_counted_where_nothing_may_raise_and_the_room_for_them_is_a_metric(open_: Open) -> None:
    logger = open_(audit_commit_records=1000, audit_overflow="count")
    registry = CollectorRegistry()
    registry.register(InferenceLoggingCollector(logger))

    def fill() -> float:
        return registry.get_sample_value("inference_logging_audit_events_fill_ratio") or -1.0

    before = fill()
    assert all(audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(500))))
    assert 0.0 < before < fill() < 1.0
    accepted = audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert fill() > 0.99
    assert logger.stats()["audit"]["dropped"] == {"serialize_error": {"INFO": accepted.count(False)}}
    assert 0 < accepted.count(False) < MANY


log = get_logger("app")


@pytest.fixture(name="app")
def _app() -> FastAPI:
    app = FastAPI()

    @app.api_route("/decide", methods=["GET", "HEAD"])
    async def decide() -> dict[str, bool]:
        await log.audit("decision", allowed=True)
        return {"allowed": True}

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def chunks() -> AsyncIterator[str]:
            yield "first"
            await log.audit("decision", allowed=True)

        return StreamingResponse(chunks())

    return app


@pytest.fixture(name="parameters")
def _parameters(tmp_path: Path) -> dict[str, Any]:
    return {"service_name": "t", "directory": tmp_path / "logs", "queue_directory": tmp_path / "queues", "audit": "on"}


@pytest.fixture(name="stuck")
def _stuck(parameters: dict[str, Any]) -> Iterator[Config]:
    # Nobody listens for the audit lane: its directory stands in the way of the listener's output.
    (parameters["directory"]).mkdir(parents=True)
    config = Config(**parameters, audit_block_s=0.2, drain_deadline_s=0.5)
    logger = Logger.shared(config)
    (parameters["directory"] / "audit").rmdir()
    (parameters["directory"] / "audit").write_bytes(b"in the way")
    yield config
    logger.release()


def served(app: FastAPI, config: Config) -> TestClient:
    """Return a client of the application behind the middleware."""
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    return TestClient(app, raise_server_exceptions=False)


def request_records(config: Config) -> list[dict[str, Any]]:
    """Return the terminal records."""
    return [line for line in read_lines(config.directory) if line["event_name"] == "request"]


def test_an_audit_record_carries_the_ids_of_its_request(app: FastAPI, parameters: dict[str, Any]) -> None:
    config = Config(**parameters)
    with served(app, config) as client:
        answer = client.get("/decide", headers={"traceparent": TRACEPARENT.decode()})
        assert answer.json() == {"allowed": True}
        (line,) = [line for line in read_lines(config.directory / "audit") if line["event_name"] == "decision"]
    (request,) = request_records(config)
    assert (line["trace_id"], line["request_id"]) == (TRACE_ID, request["request_id"])
    assert request["parent_span_id"] == PARENT_ID


def test_a_record_that_is_not_committed_is_answered_with_503_unless_the_answer_has_begun_and_health_reports_the_lane(
    app: FastAPI, stuck: Config
) -> None:
    def reasons() -> list[str]:
        found: list[str] = client.get("/health/logging").json()["reasons"]
        return [reason for reason in found if reason.startswith("audit lane: sink file is failing")]

    with served(app, stuck) as client:
        answer = client.get("/decide")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {"detail": "an audit record was not committed: not_committed"}
        wait_until(reasons, "the reason")
        head = client.head("/decide")
        assert (head.status_code, head.content) == (503, b"")
        with pytest.raises(AuditError):
            TestClient(app).get("/stream")
        assert client.get("/nothing").status_code == 404
        found = wait_until(lambda: len(seen := request_records(stuck)) == 4 and seen, "each request's record")
    assert [record["http.response.status_code"] for record in found] == [503, 503, 200, 404]
    assert {(record["outcome"], record["error.type"]) for record in found[:3]} == {("error", "AuditError")}


def test_a_server_without_an_audit_lane_answers_500(app: FastAPI, parameters: dict[str, Any]) -> None:
    with served(app, Config(**{**parameters, "audit": "off"})) as client:
        assert client.get("/decide").status_code == 500


def test_metrics_count_the_audit_lane(app: FastAPI, parameters: dict[str, Any]) -> None:
    pytest.importorskip("prometheus_client")
    with served(app, Config(**parameters, metrics_path="/metrics")) as client:
        for _ in range(3):
            assert client.get("/decide").status_code == 200
        lines = client.get("/metrics").text.splitlines()
    assert "inference_logging_audit_records_committed_total 3.0" in lines
    assert "inference_logging_audit_records_accepted_total 3.0" in lines
    assert 'inference_logging_audit_records_dropped_total{reason="queue_full"} 0.0' in lines


def rows(directory: Path) -> list[tuple[Any, ...]]:
    """Return boot id, sequence and line of each row, in their order."""
    with closing(sqlite3.connect(directory / "logs/audit/t-audit.sqlite")) as connection:
        return connection.execute("SELECT boot_id, seq, line FROM records ORDER BY rowid").fetchall()


def test_sqlite_holds_each_record_once_in_a_chain(open_: Open, tmp_path: Path) -> None:
    def decisions() -> list[tuple[Any, ...]]:
        return [row for row in rows(tmp_path) if row[1] is not None]

    async def main(logger: Logger) -> None:
        await asyncio.gather(*(logger.audit("decision", number=number) for number in range(50)))
        assert len(decisions()) % 50 == 0, "awaited is committed"

    for _ in range(2):
        logger = open_(audit_sink="sqlite")
        asyncio.run(main(logger))
        logger.close()
    found = decisions()
    assert [row[1] for row in found] == [*range(50), *range(50)]
    assert len(rows(tmp_path)) == 2 * 51, "and the end of each process"
    assert [json.loads(row[2])["number"] for row in found] == [*range(50), *range(50)]
    path = tmp_path / "logs/audit/t-audit.sqlite"
    assert path.stat().st_mode & 0o777 == 0o600
    assert problems(tmp_path) == []


def test_a_batch_that_sqlite_has_already_is_passed_over_and_the_chain_goes_on(tmp_path: Path) -> None:
    def line(boot_id: str, seq: int) -> bytes:
        return json.dumps({"timestamp": "t", "event_name": "e", "boot_id": boot_id, "seq": seq}).encode() + b"\n"

    path = tmp_path / "logs/audit/t-audit.sqlite"
    batch = line("a", 0) + line("b", 0) + line("a", 1)
    first = SqliteWriter(path, "sha256", None)
    first(batch)
    first(None)
    successor = SqliteWriter(path, "sha256", None)
    successor(batch + line("a", 2))
    successor(None)
    assert [row[:2] for row in rows(tmp_path)] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    chain = LineChain("sha256", None, None)
    assert all(chain.check(row[2].encode()) for row in rows(tmp_path))


def test_what_a_listener_reported_before_it_died_is_not_reported_again_by_the_next_one(tmp_path: Path) -> None:
    def dropped(new: int, in_all: int) -> bytes:
        reasons = {"queue_full": {"INFO": in_all - 1, "WARN": 1}}
        return line("log.dropped", dropped=new, reasons=reasons)

    def line(event: str, **fields: Any) -> bytes:
        return json.dumps({"timestamp": "t", "event_name": event, "boot_id": "a", **fields}).encode() + b"\n"

    path = tmp_path / "logs/audit/t-audit.sqlite"
    first = SqliteWriter(path, None, None)
    first(dropped(3, 3))
    first(None)
    successor = SqliteWriter(path, None, None)
    for lines in (dropped(3, 3), dropped(5, 5), dropped(2, 7), line("process.ended"), line("process.ended")):
        successor(lines)
    successor(None)
    reported = [json.loads(row[2]) for row in rows(tmp_path)]
    assert [one.get("dropped") for one in reported] == [3, 2, 2, None]


def test_a_chain_can_begin_in_a_database_that_had_none_and_change_how_it_is_computed(
    open_: Open, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("0f" * 32)
    keyed: dict[str, Any] = {"audit_chain_key_file": tmp_path / "key"}
    for parameters in ({"audit_chain": "off"}, {}, {"audit_chain": "sha256"}, keyed):
        logger = open_(audit_sink="sqlite", **parameters)
        assert asyncio.run(logger.audit("decision", number=1))
        logger.close()
        keys = ("--chain-key-file", str(tmp_path / "key")) if parameters is keyed else ()
        assert problems(tmp_path, *keys) == []


def test_a_copy_where_nothing_can_be_written_is_read_all_the_same(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_sink="sqlite")
    assert asyncio.run(logger.audit("decision", number=1))
    logger.close()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copy(tmp_path / "logs/audit/t-audit.sqlite", directory))
        copy.chmod(0o444)
        Path(directory).chmod(0o555)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)  # root may write everywhere
                status = 0 if b'"number":1' in b"".join(blocks_of_lines(copy)) else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        Path(directory).chmod(0o755)


def test_an_sqlite_transaction_that_fails_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "logs/audit/t-audit.sqlite"
    writer = SqliteWriter(path, None, None)
    good = b'{"timestamp":"t","event_name":"e","boot_id":"a","seq":0}\n'
    with pytest.raises(ValueError, match="invalid literal"):
        writer(good + b"no JSON\n")
    assert rows(tmp_path) == []
    writer(good)
    writer(None)
    assert len(rows(tmp_path)) == 1
