"""Health over HTTP: readiness, liveness, and the state on the answers of the server's own health route."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient

from inference_logging import Config, ConfigError, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.record.health import Watch
from tests.kit.signatures import Configure
from tests.kit.support import Client, answer, http_scope, read_records, replying, serve_one, wait_until

Start = Callable[..., tuple[TestClient, Config]]

READY, LIVE = "/health/logging", "/health/logging/live"
UNHEARD = {"listener": "external", "drain_deadline_s": 0}


@pytest.fixture
def start(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Serve an application behind the middleware, whose answers are each about what was done just before."""
    monkeypatch.setattr(Watch, "recent", Watch.look)
    clients = []

    def serve(**parameters: Any) -> tuple[TestClient, Config]:
        app = FastAPI()
        config = configure(**parameters)
        app.add_middleware(InferenceLoggingMiddleware, config=config)
        app.get(READY)(lambda: "the application's own")
        app.get("/")(lambda: "served")
        app.get("/health")(lambda: Response(b"well", headers={"x-own": "kept", "Inference-Logging-State": "forged"}))
        app.get("/ill")(lambda: Response(b"ill", status_code=500, headers={"retry-after": "77"}))
        clients.append(TestClient(app).__enter__())
        return clients[-1], config

    yield serve
    for client in clients:
        client.__exit__(None, None, None)


def backlog(records: int) -> None:
    log = get_logger("app")
    for _ in range(records):
        assert log.info("waits")


def test_an_idle_logger_is_ready_and_alive_and_says_who_listens(start: Start) -> None:
    client, _ = start()
    wait_until(lambda: client.get(READY).json()["listener"]["leader"] == "here", "this process to listen")
    for path in (READY, LIVE):
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        assert "retry-after" not in response.headers
        body = response.json()
        assert body["listener"].pop("since_last_round_s") >= 0
        assert body == {
            "status": "ok",
            "reasons": [],
            "backlog_records": 0,
            "fill_ratio": 0.0,
            "oldest_age_s": None,
            "listener": {"configured": "thread", "leader": "here"},
            "failing_sinks": [],
            "fallback_active": False,
            "dead_producers": [],
        }


def test_readiness_turns_at_the_threshold_says_why_and_comes_back_when_half_is_cleared(start: Start) -> None:
    # Nobody listens, so the records stay; then a second logger of the same directory does.
    client, config = start(health_backlog_records=100, **UNHEARD)
    backlog(99)
    response = client.get(READY)
    assert (response.status_code, response.json()["status"]) == (200, "pressured")
    backlog(1)
    response = client.get(READY)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    body = response.json()
    assert (body["status"], body["backlog_records"]) == ("degraded", 100)
    assert body["reasons"] == [
        "100 records wait for the listener; degraded from 100, cleared at 50",
        "listener is external and no process listens; 100 records wait until one does",
    ]
    assert body["oldest_age_s"] >= 0
    assert body["listener"]["configured"] == "external"
    assert body["listener"]["leader"] == "nobody"
    assert client.get(LIVE).status_code == 200, "no restart would repair that"
    assert client.get("/").json() == "served"

    with Logger(config.model_copy(update={"listener": "thread"})) as listening:
        assert listening.flush()
        while listening.backlog_records():
            assert listening.flush()
        assert client.get(READY).json()["status"] == "ok"


def test_a_queue_half_full_of_bytes_is_not_ready(start: Start) -> None:
    client, _ = start(**UNHEARD)
    log = get_logger("app")
    for _ in range(11):
        assert log.info("x" * 50_000)
    body = client.get(READY).json()
    assert (body["status"], 0.5 <= body["fill_ratio"] <= 0.6) == ("degraded", True)
    assert body["reasons"][0].startswith("52% of a queue's bytes are in use; degraded from 50%")


def test_health_requests_are_not_recorded_and_the_backlog_of_every_process_of_the_directory_counts(
    start: Start,
) -> None:
    client, config = start(**UNHEARD)
    other = Logger(config.model_copy(update={"flush_records": 7}))
    emit = other.event("e", ["n"])
    for accepted in (0, 7):
        assert all(emit(number) for number in range(accepted))
        assert [client.get(path).json()["backlog_records"] for path in (READY, LIVE) * 2] == [accepted] * 4
    other.close()


@pytest.mark.parametrize("path", [READY, LIVE])
def test_other_methods_are_answered_as_starlette_does(start: Start, path: str) -> None:
    client, _ = start()
    server = Client()  # One that takes nothing away from an answer to HEAD.
    serve_one(client.app, http_scope(path, "HEAD"), server)
    begin, body = server.sent
    headers = dict(begin["headers"])
    assert (begin["status"], body["body"], headers[b"content-type"]) == (200, b"", b"application/json")
    assert int(headers[b"content-length"]) > 100
    assert client.get(path).status_code == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
        assert response.text == "Method Not Allowed"


@pytest.mark.parametrize("paths", [("/ready", "/live"), ("", "")], ids=["others", "none"])
def test_the_paths_are_configurable_and_the_applications_own_route_is_left_alone(
    start: Start, paths: tuple[str, str]
) -> None:
    client, _ = start(health_path=paths[0], liveness_path=paths[1])
    assert [client.get(path).json()["status"] for path in paths if path] == ["ok"] * len([*filter(None, paths)])
    assert client.get(READY).json() == "the application's own"
    assert client.get(LIVE).status_code == 404


@pytest.mark.parametrize("name", ["liveness_path", "wrap_health_path"])
def test_two_routes_of_one_path_are_refused_by_name(configure: Configure, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(health_path="/x", **{name: "/x"})
    assert caught.value.problems == (f"health_path='/x': must be another path than {name}",)


# --- the server's own route ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["header", "status"])
def test_a_wrapped_answer_is_the_servers_with_our_state_added(start: Start, mode: str) -> None:
    client, _ = start(wrap_health_path="/health", wrap_health=mode)
    response = client.get("/health")
    assert (response.status_code, response.content, response.headers["x-own"]) == (200, b"well", "kept")
    assert response.headers.get_list("inference-logging-state") == ["ok"]
    assert "inference-logging-state" not in client.get("/").headers


@pytest.mark.parametrize(("mode", "status", "retry_after"), [("header", 200, None), ("status", 503, "1")])
def test_a_wrapped_answer_turns_only_where_that_is_configured(
    start: Start, mode: str, status: int, retry_after: str | None
) -> None:
    client, _ = start(wrap_health_path="/health", wrap_health=mode, health_backlog_records=4, **UNHEARD)
    backlog(3)
    response = client.get("/health")
    assert (response.status_code, response.headers["inference-logging-state"]) == (200, "pressured")
    backlog(1)
    response = client.get("/health")
    assert (response.status_code, response.headers["inference-logging-state"]) == (status, "degraded")
    assert (response.content, response.headers["x-own"]) == (b"well", "kept")
    assert response.headers.get("retry-after") == retry_after


def test_an_answer_of_the_server_that_is_not_2xx_is_never_changed(start: Start) -> None:
    client, _ = start(wrap_health_path="/ill", wrap_health="status", health_backlog_records=1, **UNHEARD)
    backlog(1)
    response = client.get("/ill")
    assert (response.status_code, response.content, response.headers["retry-after"]) == (500, b"ill", "77")
    assert response.headers["inference-logging-state"] == "degraded"


def test_a_wrapped_message_of_the_application_is_copied_not_changed(configure: Configure) -> None:
    messages, client = answer(b"well"), Client()
    app = InferenceLoggingMiddleware(replying(*messages), config=configure(wrap_health_path="/health"))
    serve_one(app, http_scope("/health"), client)
    assert (b"inference-logging-state", b"ok") in client.sent[0]["headers"]
    assert messages == answer(b"well")
    app._close()


def test_what_is_recorded_of_a_wrapped_request_is_the_servers_own_answer(start: Start) -> None:
    client, config = start(wrap_health_path="/", wrap_health="status", health_backlog_records=1, **UNHEARD)
    backlog(1)
    assert client.get("/").status_code == 503
    with Logger(config.model_copy(update={"listener": "thread"})) as listening:
        while listening.backlog_records():
            assert listening.flush()
    (record,) = read_records(config.directory, "request")
    assert record["http.response.status_code"] == 200


def test_without_a_logger_readiness_says_closed_and_liveness_does_not_ask_for_a_restart(
    configure: Configure, tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    config = configure(queue_directory=tmp_path / "file", wrap_health_path="/health", wrap_health="header")
    middleware, sent = InferenceLoggingMiddleware(replying(*answer(b"x")), config=config), {}
    for path in (READY, LIVE, "/health"):
        serve_one(middleware, http_scope(path), client := Client())
        sent[path] = client.sent
    for path, status in ((READY, 503), (LIVE, 200)):
        start, body = sent[path]
        assert (start["status"], json.loads(body["body"])["status"]) == (status, "closed")
    start, _ = sent["/health"]
    assert (start["status"], dict(start["headers"])[b"inference-logging-state"]) == (200, b"closed")
    assert "requests are NOT recorded" in capfd.readouterr().err
