"""What a real Triton leaves when it ends or is killed, with and without the proxy before it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integrations.triton_server import (
    EXIT_TIMEOUT_S,
    HERE,
    MODELS,
    VENV,
    TritonServer,
    assert_books_balance,
    environment_of,
    serving,
)
from tests.kit.proxies import Proxy
from tests.kit.servers import free_port
from tests.kit.support import wait_until

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


InFront = Callable[[int], Proxy]
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "triton" / "model_repository"
SERVICE = "inference.GRPCInferenceService"
LARGE_BYTES = 4 << 20


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Serve the examples, and a model whose client can leave in the middle."""
    directory = tmp_path_factory.mktemp("triton")
    repository = shutil.copytree(EXAMPLES, directory / "repository")
    shutil.copytree(MODELS / "stream", repository / "stream")
    with serving(directory, repository=repository) as server:
        yield server
        assert server.stops()
    assert_books_balance(server)


def command(port: int, what: str, *arguments: object) -> list[str | Path]:
    """Return how Triton's own client is started; see ``triton/client.py``."""
    return [VENV / "bin" / "python", HERE / "client.py", str(port), what, *map(str, arguments)]


def ask(port: int, what: str, *arguments: object) -> Any:
    """Run Triton's own client against a port, and return what it got."""
    done = subprocess.run(command(port, what, *arguments), capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def records(proxy: Proxy, count: int) -> list[dict[str, Any]]:
    """Wait for so many records, and return them."""
    wait_until(lambda: len(proxy.records()) >= count, f"{count} records")
    assert len(proxy.records()) == count
    return proxy.records()


def test_calls_over_http_are_the_same_and_on_record(triton: TritonServer, in_front: InFront) -> None:
    proxy = in_front(triton.http)
    answers = ask(proxy.port, "over-http")
    assert answers == ask(triton.http, "over-http")
    found = records(proxy, len(answers))
    by_name = dict(zip(answers, found, strict=True))
    assert [record["http.request.method"] for record in found] == ["POST"] * 5 + ["GET"]
    assert by_name["small"]["url.path"] == "/v2/models/scale/infer"
    assert [record["http.response.status_code"] for record in found] == [200, 200, 200, 200, 404, 200]
    assert {record["outcome"] for record in found} == {"ok"}
    large = by_name["large"]
    assert min(large["http.request.body.size"], large["http.response.body.size"]) > LARGE_BYTES
    assert all(record["http.response.body.size"] > 0 for record in found)


def test_an_answer_over_http_has_the_same_bytes_and_headers(triton: TritonServer, in_front: InFront) -> None:
    proxy = in_front(triton.http)
    inputs = [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}]
    body = {"id": "same", "inputs": inputs, "parameters": {"binary_data_output": True}}
    plain = {"accept-encoding": "identity"}
    direct, passed = (
        httpx.post(f"http://127.0.0.1:{port}/v2/models/scale/infer", json=body, headers=plain, timeout=60)
        for port in (triton.http, proxy.port)
    )
    assert "inference-header-content-length" in direct.headers
    # Triton sends no date, and a proxy has to add one (RFC 9110, section 6.6.1).
    assert [header for header in passed.headers.raw if header[0] != b"date"] == direct.headers.raw
    assert (passed.status_code, passed.content) == (200, direct.content)
    assert proxy.record()["http.response.body.size"] == len(direct.content)


def test_calls_over_grpc_are_the_same_and_on_record(triton: TritonServer, in_front: InFront) -> None:
    proxy = in_front(triton.grpc)
    answers = ask(proxy.port, "over-grpc")
    assert answers == ask(triton.grpc, "over-grpc")
    assert len(answers["stream"]) == 4
    found = records(proxy, len(answers))
    by_name = dict(zip(answers, found, strict=True))
    streams = [record for name, record in by_name.items() if "stream" in name]
    assert {record["rpc.method"] for record in streams} == {f"{SERVICE}/ModelStreamInfer"}
    assert {record["rpc.method"] for record in found if record not in streams} == {f"{SERVICE}/ModelInfer"}
    assert {(record["rpc.system.name"], record["network.protocol.version"]) for record in found} == {("grpc", "2")}
    statuses = {name: record["rpc.response.status_code"] for name, record in by_name.items()}
    said = {name: answers[name][0].removeprefix("StatusCode.") for name in ("unknown", "not one answer")}
    assert said == {"unknown": "NOT_FOUND", "not one answer": "UNIMPLEMENTED"}
    # What is wrong with one request of a stream, Triton says in a message of it.
    assert statuses == {name: said.get(name, "OK") for name in answers}
    assert {name for name, record in by_name.items() if record["outcome"] == "error"} == {"not one answer"}
    large = by_name["large"]
    assert min(large["http.request.body.size"], large["http.response.body.size"]) > LARGE_BYTES
    stream = by_name["stream"]
    # Before each response are five bytes of gRPC and two of the message around it.
    assert stream["http.response.body.size"] == sum(7 + len(answer) // 2 for answer in answers["stream"])
    assert 1 <= stream["chunks"] <= 4
    assert stream["gen_ai.response.time_to_first_chunk"] <= stream["duration_s"]


def test_a_stream_over_http_has_the_same_events(triton: TritonServer, in_front: InFront) -> None:
    proxy = in_front(triton.http)
    direct, passed = (
        httpx.post(f"http://127.0.0.1:{port}/v2/models/words/generate_stream", json={"TEXT": "one two"}, timeout=60)
        for port in (triton.http, proxy.port)
    )
    assert direct.text.count("data:") >= 2
    assert (passed.status_code, passed.content) == (200, direct.content)
    record = proxy.record()
    assert (record["outcome"], record["http.response.body.size"]) == ("ok", len(direct.content))
    assert record["chunks"] >= 1


def test_a_client_that_cancels_is_on_record_and_the_model_hears_of_it(triton: TritonServer, in_front: InFront) -> None:
    proxy = in_front(triton.grpc)
    assert ask(proxy.port, "stream", "cancelled", 5000, 3, 20)[:3] == ["word0", "word1", "word2"]
    record = proxy.record()
    assert (record["outcome"], record["rpc.method"]) == ("client_disconnect", f"{SERVICE}/ModelStreamInfer")
    assert record["chunks"] >= 3
    model = triton.record("cancelled", "stream")
    assert (model["outcome"], model["chunks"] < 5000) == ("client_disconnect", True)


def test_a_server_that_is_killed_in_the_middle_of_a_stream_is_on_record(tmp_path: Path, in_front: InFront) -> None:
    shutil.copytree(MODELS / "stream", tmp_path / "repository" / "stream")
    with serving(tmp_path / "server", repository=tmp_path / "repository") as server:
        proxy = in_front(server.grpc)
        # A stub that asks whether a client has cancelled when its server vanishes waits for the answer for ever.
        endless = command(proxy.port, "stream", "killed", 100_000, 0, 5, "no")
        with subprocess.Popen(endless, stdout=subprocess.PIPE, text=True) as client:
            wait_until(lambda: in_flight(server), "the stream to begin")
            server.kill()
            output, _ = client.communicate(timeout=180)
    assert json.loads(output)[-1].startswith("error: ")
    record = proxy.record()
    assert (record["outcome"], record["rpc.method"]) == ("error", f"{SERVICE}/ModelStreamInfer")
