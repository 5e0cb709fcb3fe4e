"""A real Triton behind the proxy: its clients get the same answers, and each of their calls is on record."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integrations.test_triton_ends import in_flight
from tests.integrations.triton_server import HERE, MODELS, VENV, TritonServer, assert_books_balance, serving
from tests.proxies import Proxy
from tests.support import wait_until

pytestmark = pytest.mark.triton

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
