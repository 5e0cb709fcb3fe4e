"""Audit records made in requests: their ids, and 503 where one is not committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.responses import StreamingResponse

from inference_logging import AuditError, Config, InferenceLoggingMiddleware, Logger, get_logger
from tests.support import PARENT_ID, TRACE_ID, TRACEPARENT, read_lines, wait_until

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
