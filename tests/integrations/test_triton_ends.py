"""How a real Triton and its stubs end, in order and not: nothing accepted is lost, and every death is reported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.integrations.triton_server import EXIT_TIMEOUT_S, TritonServer, assert_books_balance, environment_of, serving
from tests.servers import free_port
from tests.support import wait_until

pytestmark = pytest.mark.triton


@contextlib.contextmanager
def listening(server: TritonServer) -> Iterator[httpx.Client]:
    """Run `inference-logging listen` beside a server, and return a client of its endpoint."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("inference-logging")), "listen"]
    process = subprocess.Popen(
        [*command, "--metrics-port", str(port), "--metrics-address", "127.0.0.1"], env=environment_of(server.config)
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:

            def answers() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return client.get("/live").status_code == 200
                return False

            wait_until(answers, "the listener to serve its endpoint")
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def start_streams(server: TritonServer, count: int) -> list[subprocess.Popen[str]]:
    """Start streams without end, and wait until each has begun to be served."""
    # A stub that asks whether a client has cancelled when its server vanishes waits for the answer for ever.
    clients = [server.grpc_client("stream", f"endless-{number}", 100_000, 0, 5, "no") for number in range(count)]
    wait_until(lambda: len(in_flight(server)) >= count, "the streams to begin")
    return clients


def in_flight(server: TritonServer) -> list[int]:
    """Return one entry for each request in flight, as `inspect` of the queues sees them."""
    from inference_logging._native import queues_of

    seen = queues_of(server.config.resolved_queue_directory)
    return [1 for queue in seen for _ in range(queue["in_flight"])]


def test_a_stub_that_is_killed_loses_nothing_and_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path, listener="external") as server, listening(server) as endpoint:
        for number in range(20):
            server.echo(f"before-{number}", 1.0)
        clients = start_streams(server, 3)
        assert endpoint.get("/producers").status_code == 200
        (pid,) = server.stubs("stream").values()
        os.kill(pid, signal.SIGKILL)
        died = [server.record(f"endless-{number}", "stream") for number in range(3)]
        for record in died:
            assert (record["outcome"], record["error.type"]) == ("process_died", "process_died")
            assert record["triton.model_instance_name"] == "stream_0_0"
            assert record["chunks"] >= 1
        (ended,) = server.wait_for(event="process.ended", how="died")
        assert ended["producer_name"] == "stream_0_0"
        # Triton says that all is well.
        assert server.client.get("/v2/health/ready").status_code == 200
        # Four looks a second serve everybody who asks.
        wait_until(lambda: endpoint.get("/producers").status_code == 503, "the death to be seen")
        assert endpoint.get("/producers").json()["dead_producers"] == ["stream_0_0"]
        assert endpoint.get("/health").json()["status"] == "producer_died"
        metrics = endpoint.get("/metrics").text
        assert "inference_logging_producer_deaths_total 1.0" in metrics
        assert 'inference_logging_producer_dead{producer="stream_0_0"} 1.0' in metrics
        assert 'inference_logging_state{state="producer_died"} 1.0' in metrics
        for client in clients:
            client.kill()
            client.communicate()
        assert len(server.wait_for(20, model="echo")) == 20
    assert_books_balance(server, deaths=1)


def test_a_busy_request_of_a_killed_stub_has_its_duration(tmp_path: Path) -> None:
    with serving(tmp_path, listener="external") as server, listening(server):
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(server.echo, "busy", 1.0, do="sleep", seconds=600)
            wait_until(lambda: in_flight(server), "the request to begin")
            begun_s = time.monotonic()
            # The listener looks at all stubs at once: when it sees that one is dead, it sees that the others live.
            seen_s = time.monotonic()
            os.kill(server.stubs("drowsy")["drowsy_0_0"], signal.SIGKILL)
            server.wait_for(event="process.ended", producer_name="drowsy_0_0")
            for pid in server.stubs("echo").values():
                os.kill(pid, signal.SIGKILL)
            assert asked.result().status_code == 500
        record = server.record("busy")
        assert record["outcome"] == "process_died"
        assert record["duration_s"] >= seen_s - begun_s > 0
    assert_books_balance(server, deaths=3)


def test_a_model_that_is_loaded_again_takes_the_place_of_a_dead_one(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--model-control-mode=explicit", "--load-model=*", listener="external") as server,
        listening(server) as endpoint,
    ):
        (pid,) = server.stubs("drowsy").values()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: endpoint.get("/producers").status_code == 503, "the death to be reported")
        server.post("repository/models/drowsy/unload")
        wait_until(lambda: server.post("repository/models/drowsy/load").status_code == 200, "the model to load")
        wait_until(lambda: endpoint.get("/producers").status_code == 200, "the successor to be seen")
        assert endpoint.get("/health").json()["status"] == "ok"
    assert_books_balance(server, deaths=1)


def test_a_model_is_unloaded_and_loaded_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--model-control-mode=explicit", "--load-model=*") as server:
        server.echo("first", 1.0)
        before = server.stubs("echo")
        assert server.post("repository/models/echo/unload").status_code == 200
        wait_until(lambda: not server.stubs("echo"), "the stubs to end")
        assert server.post("repository/models/echo/load").status_code == 200
        server.echo("second", 1.0)
        assert server.record("first")["pid"] in before.values()
        assert server.record("second")["pid"] not in before.values()
        # A model that changes: the new stubs are there before the old ones end.
        (server.repository / "echo" / "1" / "model.py").touch()
        assert server.post("repository/models/echo/load").status_code == 200
        server.echo("third", 1.0)
        assert server.record("third")["pid"] not in {*before.values(), server.record("second")["pid"]}
    assert_books_balance(server)


def test_sigterm_lets_streams_end_and_all_of_it_is_on_record(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        clients = [server.grpc_client("stream", f"ending-{number}", 100, 0, 10) for number in range(4)]
        wait_until(lambda: len(in_flight(server)) == 4, "the streams to begin")
        assert server.stops()
        for client in clients:
            client.communicate(timeout=120)
        records = [server.record(f"ending-{number}", "stream") for number in range(4)]
        assert {(record["outcome"], record["chunks"]) for record in records} == {("ok", 100)}
    assert_books_balance(server)


def test_a_stub_that_outlives_the_exit_timeout_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.echo("before", 1.0)
        clients = start_streams(server, 2)
        server.process.send_signal(signal.SIGTERM)
        # A busy machine has seen a server that did not end for 40 s; whatever keeps it, its records must not suffer.
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(EXIT_TIMEOUT_S + 30)
            wait_until(lambda: not server.stubs(), "the stubs to end", 30)
        server.kill()
        for client in clients:
            client.kill()
            client.communicate()
    assert_books_balance(server, deaths=5, may_end_in_order=True)
    records = [server.record(f"endless-{number}", "stream") for number in range(2)]
    assert {record["outcome"] for record in records} <= {"process_died", "server_shutdown"}
    assert server.record("before")["outcome"] == "ok"


def test_a_server_that_is_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        answered: list[str] = []

        def ask(number: int) -> None:
            with contextlib.suppress(httpx.TransportError):
                if server.echo(f"load-{number}", 1.0).status_code == 200:
                    answered.append(f"load-{number}")

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, number) for number in range(2000)]
            try:
                wait_until(lambda: len(answered) > 300, "requests to be answered")
            finally:
                os.killpg(server.process.pid, signal.SIGKILL)
                for one in asked:
                    one.cancel()
    assert_books_balance(server, deaths=5)
    recorded = {record.get("client_request_id") for record in server.records() if record["outcome"] == "ok"}
    assert set(answered) <= recorded
