"""Servers that replace their workers, and those whose log cannot be opened: they serve, and record once they can."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import Config, InferenceLoggingMiddleware, Logger, OpenError
from tests.servers import HERE, Load, Server, serving, uvicorn
from tests.sidecars import Sidecar
from tests.sinks import small_file_system
from tests.support import read_records, wait_until
from tests.test_listen import served_port
from tests.test_no_room import fill
from tests.test_servers import assert_each_answer_is_recorded

Configure = Callable[..., Config]
GUNICORN = ("gunicorn", "served_app:app", "--chdir", str(HERE), "--bind", "127.0.0.1:{port}", "--preload", "-w", "2")


def drain(config: Config) -> None:
    """Write what the server's last workers have left, as its next start does."""
    with Logger(config) as logger:

        def is_alone() -> bool:
            return logger.flush() and len(list(config.resolved_queue_directory.glob("*.queue"))) == 1

        wait_until(is_alone, "the queues of other processes to be written")


def assert_each_worker_has_a_queue_of_its_own(directory: Path, workers: int) -> None:
    """Check that at least so many took part, that no two share a queue, and that no sequence has a gap."""
    records: list[dict[str, Any]] = [record for record in read_records(directory) if "seq" in record]
    pids = {record["boot_id"]: record["pid"] for record in records}
    assert len(pids) == len({(record["boot_id"], record["pid"]) for record in records}) >= workers
    for boot_id in pids:
        numbers = sorted(record["seq"] for record in records if record["boot_id"] == boot_id)
        assert numbers == list(range(len(numbers)))


def serve_until_recycled(server: Server, path: str, workers: int) -> Load:
    """Send requests until so many processes have answered; return what was answered."""
    seen: set[int] = set()
    with Load(server, path, clients=4) as load:

        def enough() -> bool:
            seen.update(record["pid"] for record in read_records(server.config.directory, "request"))
            return len(seen) >= workers

        wait_until(enough, f"{workers} workers")
    return load


@pytest.mark.servers
@pytest.mark.parametrize(
    "limit",
    [
        ("-k", "uvicorn.workers.UvicornWorker", "--max-requests", "40"),
        ("-k", "asgi", "--max-requests", "40", "--max-requests-jitter", "20"),
    ],
    ids=["uvicorn-worker", "asgi"],
)
def test_gunicorn_that_preloads_and_recycles_its_workers_records_each_answer(
    configure: Configure, limit: tuple[str, ...]
) -> None:
    config = configure(flush_interval_s=0.05)
    with serving(config, *GUNICORN, *limit, SERVED_APP_LOGS_AT_IMPORT="1") as server:
        load = serve_until_recycled(server, "/logged/1", 4)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 4)
    imported = [record for record in read_records(config.directory, "log") if record["message"] == "imported"]
    assert len(imported) == 1


@pytest.mark.servers
def test_uvicorn_that_recycles_its_workers_records_each_answer(configure: Configure) -> None:
    config = configure(flush_interval_s=0.05)
    with uvicorn(config, "--workers", "2", "--limit-max-requests", "40") as server:
        load = serve_until_recycled(server, "/logged/1", 3)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 3)


@pytest.mark.servers
def test_uvicorn_that_restarts_its_workers_at_sighup_records_each_answer(configure: Configure) -> None:
    config = configure(flush_interval_s=0.05)
    # A new worker has this long to start; after the 5 s of the default uvicorn gives up the restart.
    with uvicorn(config, "--workers", "2", "--timeout-worker-healthcheck", "60") as server:
        with Load(server, "/logged/1", clients=4) as load:
            load.wait_for(50)
            server.process.send_signal(signal.SIGHUP)

            def restarted() -> bool:
                return len({record["pid"] for record in read_records(config.directory, "request")}) >= 3

            wait_until(restarted, "a new worker")
            load.wait_for(50)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 3)


HEALTH = "/health/logging"


@pytest.fixture
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


@pytest.mark.servers
@pytest.mark.usefixtures("blocked")
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


@pytest.mark.servers
@pytest.mark.usefixtures("blocked")
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


@pytest.mark.servers
@pytest.mark.usefixtures("blocked")
def test_one_that_somebody_configured_serves_where_the_parameter_says_so(blocked: Path) -> None:
    with TestClient(application(directory=blocked, open_failure="serve")) as client:
        assert (client.get("/").json(), client.get(HEALTH).json()["status"]) == ("served", "degraded")
        blocked.unlink()
        wait_until(lambda: client.get(HEALTH).status_code == 200, "the log")
    with pytest.raises(OpenError), TestClient(application(directory="/proc/none", open_failure="serve", audit="on")):
        pass


@pytest.mark.servers
@pytest.mark.usefixtures("blocked")
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


@pytest.mark.servers
@pytest.mark.usefixtures("listener_command")
def test_a_listener_has_no_record_until_a_server_of_its_configuration_opens(configure: Configure) -> None:
    """The alert InferenceLoggingNothingRecorded relies on it."""
    config = configure(service_name="unopened", listener="external")
    shared = {name: getattr(config, name) for name in ("directory", "queue_directory", "listener")}
    with Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar:
        sidecar.wait_for("leader queues=0")
        port = wait_until(lambda: served_port(sidecar.lines), "the port")

        def accepted() -> str:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=120).text
            return next(line for line in text.splitlines() if line.startswith("inference_logging_records_accepted_tot"))

        with TestClient(
            application(**shared, redact_fields=["password"], server_record="on", open_failure="serve")
        ) as other:
            assert (other.get("/").json(), other.get(HEALTH).json()["status"]) == ("served", "degraded")
            assert accepted().endswith("_total 0.0")
        with TestClient(application(**shared, server_record="on")):
            wait_until(lambda: accepted().endswith("_total 1.0"), "the record of the server's start")
