"""Traffic of a real vLLM is recorded, exported and sent to it again by `replay`: it is the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integrations.vllm_server import WRITING, VllmServer, serving
from tests.kit.books import assert_books_balance
from tests.kit.command_line import run
from tests.kit.support import wait_until

pytestmark = pytest.mark.vllm

EXACTLY: Final = {"temperature": 0, "ignore_eos": True, "max_tokens": 6}
CHAT: Final = "/v1/chat/completions"
ASKED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "whole": (CHAT, {"messages": [{"role": "user", "content": "tell me a story"}], **EXACTLY}),
    "streamed": (
        CHAT,
        {"messages": [{"role": "user", "content": "tell me another"}], **EXACTLY, "max_tokens": 9, "stream": True},
    ),
    "prompt": ("/v1/completions", {"prompt": "once upon a time", **EXACTLY}),
    "refused": (CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50_000}),
    "left": (CHAT, {"messages": [{"role": "user", "content": "go on"}], **EXACTLY, "max_tokens": 4000, "stream": True}),
}
LEFT_AFTER: Final = 3
"""Chunks that the client of the request ``left`` waits for."""
SAME: Final = (
    "outcome",
    "http.response.status_code",
    "gen_ai.request.model",
    "gen_ai.usage.input_tokens",
    "prompt_hash",
    "hash_ids",
)
SAME_OF_THE_ANSWERED: Final = (*SAME, "gen_ai.usage.output_tokens", "output_hash")
"""Not the number of chunks: vLLM sends what it has of a stream at once where its client reads later than it writes."""
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve with all texts on record."""
    texts = {"capture_body": "raw", "capture_input": "full", "capture_output": "full"}
    with serving(tmp_path_factory.mktemp("replay"), *WRITING, **texts) as started:
        yield started
    assert_books_balance(started.config)


@pytest.fixture(scope="module")
def recorded(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """Send the requests, and return their export and its rows by name."""
    for name, (path, body) in ASKED.items():
        if name == "left":
            leave(server, path, body)
        else:
            server.client.post(path, json={"model": "tiny", **body}, headers={"x-request-id": name})
        time.sleep(0.2)
    wait_until(lambda: len(server.records()) == len(ASKED), "all records")
    file = tmp_path_factory.mktemp("export") / "batch.jsonl"
    rows = exported(server, file)
    names = {record["request_id"]: record["client_request_id"] for record in server.records()}
    return file, {names[request_id]: row for request_id, row in rows.items()}


def leave(server: VllmServer, path: str, body: dict[str, Any]) -> None:
    """Leave in the middle of a stream, as a client does that has read enough."""
    content, chunks = {"model": "tiny", **body}, 0
    with server.client.stream("POST", path, json=content, headers={"x-request-id": "left"}) as answer:
        for line in answer.iter_lines():
            chunks += line.startswith("data:")
            if chunks == LEFT_AFTER:
                return


def exported(server: VllmServer, file: Path) -> Rows:
    """Export all requests on record; return the rows by request id. Ids of all exports are made with one key."""
    key = server.place / "key"
    key.write_bytes(b"k" * 32)
    options = ("--format", "openai-jsonl", "-o", str(file), "--hash-key-file", str(key), "--block-tokens", "1")
    done = run("export", str(server.config.directory), *options)
    assert done.code == 0, done.err
    return {row["custom_id"]: row for row in map(json.loads, file.read_text().splitlines())}


def replayed(server: VllmServer, first: Rows, file: Path, send: Callable[[], None]) -> Rows:
    """Return the rows of a replay by the names of the recorded requests, once all are there."""
    before = len(server.records())
    send()
    wait_until(lambda: len(server.records()) == before + len(ASKED), "all records of the replay")
    ids = {row["custom_id"]: name for name, row in first.items()}
    rows = exported(server, file)
    records = {record["request_id"]: record.get("client_request_id") for record in server.records()}
    return {ids[client]: rows[own] for own, client in records.items() if client in ids}


def assert_same(first: Rows, again: Rows) -> None:
    assert set(first) == set(again) == set(ASKED)
    for name, row in first.items():
        fields = SAME if name == "left" else SAME_OF_THE_ANSWERED
        found, wanted = ({field: one["recorded"].get(field) for field in fields} for one in (again[name], row))
        assert found == wanted, name
        assert again[name]["body"] == row["body"]
        assert row["body_source"] == "raw"


def test_the_recording_says_what_was_asked_and_what_came_of_it(recorded: tuple[Path, Rows]) -> None:
    _, first = recorded
    outcomes = {
        name: (row["recorded"]["outcome"], row["recorded"]["http.response.status_code"]) for name, row in first.items()
    }
    answered = dict.fromkeys(("whole", "streamed", "prompt"), ("ok", 200))
    assert outcomes == {**answered, "refused": ("ok", 400), "left": ("client_disconnect", 200)}
    tokens = {name: first[name]["recorded"]["gen_ai.usage.output_tokens"] for name in answered}
    assert tokens == {"whole": 6, "streamed": 9, "prompt": 6}


def test_a_replay_is_recorded_with_the_same_hashes_lengths_and_status(
    server: VllmServer, recorded: tuple[Path, Rows], tmp_path: Path
) -> None:
    file, first = recorded

    def send() -> None:
        done = run("replay", str(file), "--url", server.url, "--json", str(tmp_path / "report.json"))
        assert done.code == 0, done

    assert_same(first, replayed(server, first, tmp_path / "again.jsonl", send))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [report[name] for name in ("requests", "sent", "not_sent")] == [len(ASKED), len(ASKED), 0]
    lengths = {one["name"]: one for one in report["lengths"]}
    for name in ("input tokens", "output tokens"):
        # A stream says how many only where its client asks for that.
        assert lengths[name]["equal"] == lengths[name]["requests"] == 2, name
    assert report["times"]["time to first chunk"]["requests"] >= 1
