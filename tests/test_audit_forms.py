"""Records of audit: their forms, and those of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from starlette.responses import StreamingResponse

from inference_logging import AuditError, Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.metrics import InferenceLoggingCollector
from tests.audited import Open, problems, records
from tests.support import PARENT_ID, TRACE_ID, TRACEPARENT, read_lines, wait_until

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
    assert records(tmp_path, "order")[-1]["attributes"] == {
        **fields,
        # An integer beyond 64 bits is its digits, since readers disagree about such numbers.
        "large": str(1 << 70),
        "raw": "\ufffdx",
        "password": "[redacted:field]",
    }


def exhaust(logger: Logger) -> str:
    """Make records of ever-new events until one is refused; return the reason."""
    with pytest.raises(AuditError, match="too_many_events") as caught:
        audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    return caught.value.reason


def test_ever_new_events_are_refused_with_a_reason_and_counted(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    assert audit_all(logger, ("known", {"a": 1})) == [True]
    assert exhaust(logger) == "too_many_events"
    assert audit_all(logger, ("known", {"a": 2})) == [True]
    assert logger.stats()["audit"]["dropped"]["serialize_error"]["INFO"] > 0
    with pytest.raises(ValueError, match="schema area is full"):
        logger.event("explicit", [f"field_{number}" for number in range(50)], lane="audit")
    assert [record["a"] for record in records(tmp_path, "known")] == [1, 2]


def test_ever_new_events_are_counted_where_nothing_may_raise(open_: Open) -> None:
    logger = open_(audit_commit_records=1000, audit_overflow="count")
    accepted = audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert logger.stats()["audit"]["dropped"] == {"serialize_error": {"INFO": accepted.count(False)}}
    assert 0 < accepted.count(False) < MANY


def test_the_room_for_events_is_a_metric(open_: Open) -> None:
    logger = open_(audit_commit_records=1000, audit_overflow="count")
    registry = CollectorRegistry()
    registry.register(InferenceLoggingCollector(logger))

    def fill() -> float:
        found = registry.get_sample_value("inference_logging_audit_events_fill_ratio")
        assert found is not None
        return found

    before = fill()
    audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(500)))
    assert 0.0 < before < fill() < 1.0
    audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert fill() > 0.99


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


def test_a_record_that_is_not_committed_is_answered_with_503_and_recorded_as_an_error(
    app: FastAPI, stuck: Config
) -> None:
    with served(app, stuck) as client:
        answer = client.get("/decide")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {"detail": "an audit record was not committed: not_committed"}
        head = client.head("/decide")
        assert (head.status_code, head.content) == (503, b"")
        found = wait_until(lambda: len(seen := request_records(stuck)) == 2 and seen, "both requests' records")
    assert [record["http.response.status_code"] for record in found] == [503, 503]
    assert {(record["outcome"], record["error.type"]) for record in found} == {("error", "AuditError")}


def test_an_answer_that_has_begun_keeps_its_status(app: FastAPI, stuck: Config) -> None:
    with served(app, stuck) as client:
        with pytest.raises(AuditError):
            TestClient(app).get("/stream")
        assert client.get("/nothing").status_code == 404
        (record, _) = wait_until(lambda: len(seen := request_records(stuck)) == 2 and seen, "both requests' records")
    assert (record["http.response.status_code"], record["error.type"]) == (200, "AuditError")


def test_a_server_without_an_audit_lane_answers_500(app: FastAPI, parameters: dict[str, Any]) -> None:
    with served(app, Config(**{**parameters, "audit": "off"})) as client:
        assert client.get("/decide").status_code == 500


def test_health_reports_an_audit_lane_that_cannot_write(app: FastAPI, stuck: Config) -> None:
    with served(app, stuck) as client:
        assert client.get("/decide").status_code == 503

        def reasons() -> list[str]:
            found: list[str] = client.get("/health/logging").json()["reasons"]
            return [reason for reason in found if reason.startswith("audit lane: sink file is failing")]

        wait_until(reasons, "the reason")


def test_metrics_count_the_audit_lane(app: FastAPI, parameters: dict[str, Any]) -> None:
    pytest.importorskip("prometheus_client")
    with served(app, Config(**parameters, metrics_path="/metrics")) as client:
        for _ in range(3):
            assert client.get("/decide").status_code == 200
        lines = client.get("/metrics").text.splitlines()
    assert "inference_logging_audit_records_committed_total 3.0" in lines
    assert "inference_logging_audit_records_accepted_total 3.0" in lines
    assert 'inference_logging_audit_records_dropped_total{reason="queue_full"} 0.0' in lines
