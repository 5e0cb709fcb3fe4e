"""Real servers under load: records arrived = requests answered, through kills, reloads, new workers, failing disks."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import Config, InferenceLoggingMiddleware, Logger, OpenError
from tests.kit.child import assert_unbroken, drain
from tests.kit.servers import (
    HERE,
    Load,
    Server,
    assert_each_answer_is_recorded,
    assert_footers_balance,
    serving,
    uvicorn,
)
from tests.kit.sidecars import Sidecar, served_port
from tests.kit.signatures import Configure
from tests.kit.sinks import fill, small_file_system
from tests.kit.support import read_records, wait_until


@pytest.mark.servers
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_one_uvicorn_worker_records_each_answer(configure: Configure, loop: str) -> None:
    config = configure()
    with uvicorn(config, "--loop", loop) as server:
        with Load(server, "/") as load:
            load.wait_for(300)
        assert "Traceback" not in server.stop()
    assert load.failed == set()
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)
    assert {record["http.route"] for record in read_records(config.directory, "request")} == {"/"}


@pytest.mark.servers
def test_four_uvicorn_workers_record_each_answer_into_one_set_of_segments(configure: Configure) -> None:
    config = configure()
    with uvicorn(config, "--workers", "4") as server:
        with Load(server, "/logged/1") as load:
            load.wait_for(600)
        server.stop()
    # A queue is shared memory; one that nobody removes is lost to the machine until the next start.
    assert list(config.resolved_queue_directory.glob("*.queue")) == []
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)
    requests, logs = read_records(config.directory, "request"), read_records(config.directory, "log")
    assert {log["span_id"] for log in logs} == {request["span_id"] for request in requests}


@pytest.mark.servers
@pytest.mark.parametrize("worker", ["uvicorn.workers.UvicornWorker", "asgi"])
def test_gunicorn_with_preload_records_each_answer_also_with_a_logger_from_before_the_fork(
    configure: Configure, worker: str
) -> None:
    config = configure()
    command = ("gunicorn", "served_app:app", "--chdir", str(HERE), "--bind", "127.0.0.1:{port}", "--preload")
    with serving(config, *command, "-w", "6", "-k", worker, SERVED_APP_LOGS_AT_IMPORT="1") as server:
        with Load(server, "/logged/1") as load:
            load.wait_for(400)
        assert "inference_logging:" not in server.stop()
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)
    imported = [record for record in read_records(config.directory, "log") if record["message"] == "imported"]
    assert len(imported) == 1
    workers = {record["pid"] for record in read_records(config.directory, "request")}
    assert imported[0]["pid"] not in workers


@pytest.mark.servers
def test_a_reload_loses_nothing_of_the_process_before(configure: Configure, tmp_path: Path) -> None:
    config = configure()
    source = tmp_path / "source"
    source.mkdir()
    module = source / "reloaded_app.py"
    shutil.copy(HERE / "served_app.py", module)
    options = ("--app-dir", str(source), "--reload", "--reload-dir", str(source), "--port", "{port}")
    with serving(config, "uvicorn", "reloaded_app:app", *options) as server:
        pids = [server.get("/")["pid"] for _ in range(20)]

        def reloaded() -> bool:
            # Again and again: the watcher may have begun to look only after the first change.
            os.utime(module)
            try:
                pids.append(server.get("/")["pid"])
            except httpx.TransportError:
                return False
            return bool(pids[-1] != pids[0])

        wait_until(reloaded, "the reload")
        server.stop()
    records = Counter(record["pid"] for record in read_records(config.directory, "request"))
    for pid, answers in Counter(pids).items():
        assert records[pid] >= answers


@pytest.mark.servers
def test_an_application_without_lifespan_is_recorded_and_drained_at_sigterm(configure: Configure) -> None:
    config = configure(flush_interval_s=60, flush_records=1_000_000)
    with uvicorn(config, app="served_app:raw_app") as server:
        with Load(server, "/") as load:
            load.wait_for(200)
        server.stop()
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)


@pytest.mark.servers
def test_with_lifespan_off_what_sigterm_leaves_in_the_queue_is_written_by_the_next_start(configure: Configure) -> None:
    config = configure(flush_interval_s=60, flush_records=1_000_000)
    with uvicorn(config, "--lifespan", "off") as server:
        with Load(server, "/") as load:
            load.wait_for(200)
        server.stop()
    with Logger(config) as next_start:
        while next_start.backlog_records():
            assert next_start.flush()
    assert_each_answer_is_recorded(config.directory, load)


@pytest.mark.servers
@pytest.mark.parametrize("workers", ["1", "2"])
def test_at_sigterm_under_load_streams_in_flight_finish_and_the_books_balance(
    configure: Configure, workers: str
) -> None:
    config = configure()
    chunks, streams = 40, 16
    begun, bodies = threading.Barrier(streams + 1), []

    def read(url: str) -> None:
        with httpx.stream("GET", f"{url}/stream/{chunks}?pause_s=0.02", timeout=120) as response:
            parts = response.iter_bytes()
            first = next(parts)
            begun.wait()
            bodies.append(first + b"".join(parts))

    with uvicorn(config, "--workers", workers) as server, Load(server, "/logged/7", clients=4) as load:
        threads = [threading.Thread(target=read, args=(server.url,)) for _ in range(streams)]
        for thread in threads:
            thread.start()
        begun.wait()
        load.wait_for(20)
        server.stop()
        for thread in threads:
            thread.join()
    assert bodies == [b"".join(b"data: %d\n\n" % number for number in range(chunks))] * streams
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)
    requests = read_records(config.directory, "request")
    streamed = [record for record in requests if record["http.route"] == "/stream/{chunks}"]
    assert [(record["outcome"], record["chunks"]) for record in streamed] == [("ok", chunks)] * streams


@pytest.mark.servers
def test_killing_the_listening_worker_of_four_leaves_the_others_logging_and_loses_nothing_accepted(
    configure: Configure,
) -> None:
    # Nothing is written before the kill unless someone asks, so the killed worker dies with a full queue.
    config = configure(flush_interval_s=60, flush_records=1_000_000, queue_bytes=16 << 20)
    with uvicorn(config, "--workers", "4") as server:
        with Load(server, "/logged/1", clients=8) as load:

            def all_busy() -> dict[str, Any] | None:
                stats: dict[str, Any] = server.get("/stats")
                busy = [books for books in stats["workers"].values() if books["accepted"] > 20]
                return stats if len(busy) == 4 else None

            stats = wait_until(all_busy, "records of each worker")
            leader = stats["listener"]["leader_pid"]
            before = stats["workers"][str(leader)]
            os.kill(leader, signal.SIGKILL)
            load.wait_for(200)
            wait_until(lambda: server.get("/stats")["listener"]["leader_pid"] != leader, "another listener")
            load.wait_for(100)
        server.stop()
    assert_each_answer_is_recorded(config.directory, load)
    records = read_records(config.directory)
    killed = sorted(record["seq"] for record in records if record["boot_id"] == before["boot_id"])
    assert len(killed) >= before["accepted"]
    assert killed == list(range(len(killed)))
    assert len({record["pid"] for record in records}) >= 4


@pytest.mark.servers
@pytest.mark.parametrize("trouble", ["full", "gone"])
def test_the_server_serves_while_segments_cannot_be_written_and_writes_them_once_they_can(
    configure: Configure, trouble: str
) -> None:
    config = configure(health_backlog_records=200)
    with uvicorn(config) as server:
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        if trouble == "full":
            # As on a full disk: no file can grow.
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
        else:
            config.directory.rmdir()
            config.directory.write_bytes(b"in the way")
        with Load(server, "/") as load:
            load.wait_for(300)
            wait_until(lambda: server.get("/stats")["listener"]["sink_errors"] > 0, "the listener to fail")
            wait_until(
                lambda: httpx.get(f"{server.url}/health/logging", timeout=120).status_code == 503, "health to report"
            )
            load.wait_for(100)
            if trouble == "full":
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            else:
                config.directory.unlink()
        wait_until(
            lambda: httpx.get(f"{server.url}/health/logging", timeout=120).status_code == 200, "health to come back"
        )
        server.stop()
    assert load.failed == set()
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)


GUNICORN = ("gunicorn", "served_app:app", "--chdir", str(HERE), "--bind", "127.0.0.1:{port}", "--preload", "-w", "2")


def assert_each_worker_has_a_queue_of_its_own(config: Config, workers: int) -> None:
    """Write what the last workers have left, as a server's next start does, and check the numbers of so many."""
    with Logger(config) as logger:
        drain(logger)
    assert len(assert_unbroken(config.directory)) >= workers


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
    assert_each_worker_has_a_queue_of_its_own(config, 4)
    assert_each_answer_is_recorded(config.directory, load)
    imported = [record for record in read_records(config.directory, "log") if record["message"] == "imported"]
    assert len(imported) == 1


@pytest.mark.servers
def test_uvicorn_that_recycles_its_workers_records_each_answer(configure: Configure) -> None:
    config = configure(flush_interval_s=0.05)
    with uvicorn(config, "--workers", "2", "--limit-max-requests", "40") as server:
        load = serve_until_recycled(server, "/logged/1", 3)
        server.stop()
    assert_each_worker_has_a_queue_of_its_own(config, 3)
    assert_each_answer_is_recorded(config.directory, load)


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
    assert_each_worker_has_a_queue_of_its_own(config, 3)
    assert_each_answer_is_recorded(config.directory, load)


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
