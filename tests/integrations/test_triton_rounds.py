"""Requests that a model of a real Triton reschedules: one record each, whatever they come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.integrations.triton_server import HERE, TritonServer, assert_books_balance, serving

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Serve the models with iterative sequences; at its end all books must balance."""
    with serving(tmp_path_factory.mktemp("rounds"), repository=HERE / "iterative") as server:
        yield server
        assert server.stops()
    assert_books_balance(server)


def ask(server: TritonServer, name: str, rounds: int) -> int:
    """Ask the model that answers once, and return what is left of the rounds."""
    inputs = [{"name": "N", "datatype": "INT32", "shape": [1, 1], "data": [rounds]}]
    answer = server.post("models/turns/infer", id=server.names.take(name), inputs=inputs)
    (left,) = answer.json()["outputs"][0]["data"]
    return int(left)


def stream(server: TritonServer, name: str, rounds: int, leave_after: int = 0, **parameters: str) -> list[int]:
    """Ask the model that answers in each round, and return the numbers; give up after so many."""
    found: list[int] = []
    body = {"N": rounds, "id": server.names.take(name), "parameters": parameters}
    with (
        httpx.Client(base_url=server.client.base_url, timeout=180) as client,
        client.stream("POST", "/v2/models/rounds/generate_stream", json=body) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:"))["LEFT"])
            if len(found) == leave_after > 0:
                break
    return found


def test_a_request_of_five_rounds_has_one_record(triton: TritonServer) -> None:
    assert ask(triton, "five", 5) == 0
    (record,) = triton.wait_for(client_request_id="five")
    assert (record["outcome"], record["triton.model_name"]) == ("ok", "turns")
    assert [one["shape"] for one in record["triton.outputs"]] == [[1, 1]]


def test_a_stream_of_five_rounds_has_one_record(triton: TritonServer) -> None:
    assert stream(triton, "streamed", 5) == [4, 3, 2, 1, 0]
    (record,) = triton.wait_for(client_request_id="streamed")
    assert (record["outcome"], record["chunks"], len(record["chunk_gaps_us"])) == ("ok", 5, 4)


def test_many_requests_of_many_rounds_have_one_record_each(triton: TritonServer) -> None:
    rounds = {f"many-{number}": 2 + number % 7 for number in range(24)}
    with ThreadPoolExecutor(8) as pool:
        streamed = list(pool.map(lambda name: stream(triton, f"s-{name}", rounds[name]), rounds))
        asked = list(pool.map(lambda name: ask(triton, f"a-{name}", rounds[name]), rounds))
    assert [len(one) for one in streamed] == list(rounds.values())
    assert asked == [0] * len(rounds)
    for name, count in rounds.items():
        (once,) = triton.wait_for(client_request_id=f"a-{name}")
        (many,) = triton.wait_for(client_request_id=f"s-{name}")
        assert (once["outcome"], many["outcome"], many["chunks"]) == ("ok", "ok", count)
    # Triton pads the batches of sequences with requests that nobody sent.
    assert not [record for record in triton.records() if "client_request_id" not in record]


def test_a_request_whose_client_leaves_between_two_rounds_is_on_record(tmp_path: Path) -> None:
    with serving(tmp_path, repository=HERE / "iterative") as server:
        stream(server, "left", 1_000_000, leave_after=3)
        # Its place goes to others: four sequences are served at a time.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: stream(server, f"after-{number}", 20), range(16)))
        assert server.stops()
    assert_books_balance(server)
    assert server.record("left", "rounds")["outcome"] == "client_disconnect"
    assert {server.record(f"after-{number}", "rounds")["outcome"] for number in range(16)} == {"ok"}


def test_a_request_that_the_model_forgets_is_not_like_one_that_its_death_ends(tmp_path: Path) -> None:
    with serving(tmp_path, repository=HERE / "iterative") as server:
        stream(server, "forgotten", 2, leave_after=1, do="forget")
        (forgotten,) = server.wait_for(client_request_id="forgotten")
        assert (forgotten["outcome"], forgotten["error.type"]) == ("error", "response_incomplete")
        stream(server, "cut", 1_000_000, leave_after=1)
        server.kill()
    assert_books_balance(server, deaths=2)
    assert server.record("cut", "rounds")["outcome"] == "process_died"
