"""A log that cannot be opened, though nothing is configured wrongly: the server serves, and records once it can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import Config, InferenceLoggingMiddleware, OpenError
from tests.sinks import small_file_system
from tests.support import read_records, wait_until
from tests.test_no_room import fill

pytestmark = pytest.mark.servers

HEALTH = "/health/logging"


@pytest.fixture(autouse=True)
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory in which the default one for segments, ``logs``, cannot be made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").write_bytes(b"")
    return tmp_path / "logs"


def application(**given: Any) -> FastAPI:
    app = FastAPI()
    config = Config(service_name="unopened", metrics_path="/metrics", **given)
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    app.get("/")(lambda: "served")
    return app


def test_a_server_without_its_log_serves_and_says_so_and_records_once_it_can(
    blocked: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with TestClient(application()) as client:
        assert [client.get("/").json() for _ in range(5)] == ["served"] * 5
        health = client.get(HEALTH)
        assert (health.status_code, health.json()["status"]) == (503, "degraded")
        assert "logs" in health.json()["reasons"][0]
        assert client.get(f"{HEALTH}/live").status_code == 200, "a restart would not repair it"
        metrics = client.get("/metrics").text.splitlines()
        assert 'inference_logging_state{state="degraded"} 1' in metrics
        assert "inference_logging_requests_unrecorded_total 5" in metrics
        blocked.unlink()
        wait_until(lambda: client.get(HEALTH).status_code == 200, "the log")
        client.get("/")
    said = capfd.readouterr().err
    assert said.count("requests are NOT recorded until this is repaired: directory=") == 1
    assert "requests are recorded again; 5 were not" in said
    (counted,) = [one for one in read_records(blocked) if one.get("message") == "requests were not recorded"]
    assert counted["attributes"]["requests"] == 5
    assert len(read_records(blocked, "request")) == 1


def test_a_server_whose_queue_has_no_room_serves_and_records_once_there_is_some(tmp_path: Path) -> None:
    place = {"directory": tmp_path / "segments", "queue_directory": tmp_path / "shm" / "queues"}
    with small_file_system(tmp_path / "shm", "4m") as shared:
        ballast = fill(shared)
        with pytest.raises(OpenError, match="No space left"), TestClient(application(**place, audit="on")):
            pass
        with TestClient(application(**place, queue_bytes=1 << 20, in_flight_slots=64)) as client:
            assert client.get("/").json() == "served"
            assert client.get(HEALTH).json()["status"] == "degraded"
            ballast.unlink()
            wait_until(lambda: client.get(HEALTH).status_code == 200, "a queue")
            client.get("/")
        assert len(read_records(place["directory"], "request")) == 1


def test_one_that_somebody_configured_serves_where_the_parameter_says_so(blocked: Path) -> None:
    with TestClient(application(directory=blocked, open_failure="serve")) as client:
        assert (client.get("/").json(), client.get(HEALTH).json()["status"]) == ("served", "degraded")
        blocked.unlink()
        wait_until(lambda: client.get(HEALTH).status_code == 200, "the log")
    with pytest.raises(OpenError), TestClient(application(directory="/proc/none", open_failure="serve", audit="on")):
        pass


@pytest.mark.parametrize(
    "given",
    [
        lambda place: {"directory": place / "logs"},
        lambda place: {"queue_directory": place / "queues"},
        lambda _: {"audit": "on"},
    ],
)
def test_one_that_somebody_configured_is_refused(given: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(OpenError, match="directory"), TestClient(application(**given(tmp_path))):
        pass
