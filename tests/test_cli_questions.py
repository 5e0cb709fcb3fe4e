"""The ready-made questions answer over what a real server has written: its requests, its pod, its killed process."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.cli.questions import QUESTIONS
from tests.command_line import run
from tests.identity import BODY, Configure, records_of
from tests.segment_files import request, write_segment
from tests.support import read_records

HEADERS = ["x-tenant=tenant.id", "x-session=gen_ai.conversation.id"]
POD = "k8s.pod.name=pod-7,k8s.node.name=node-3"
KILLED = """
import asyncio, os, signal
from inference_logging import InferenceLoggingMiddleware

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(3):
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    scope = {"type": "http", "method": "GET", "path": "/p", "headers": [(b"x-tenant", b"acme")]}
    async def send(message):
        pass
    await InferenceLoggingMiddleware(app)(scope, None, send)

asyncio.run(main())
"""


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer as an engine with a prefix cache does; a client named so leaves, and a request named so fails."""
    await receive()
    headers = dict(scope["headers"])
    if headers.get(b"x-end") == b"fails":
        raise ZeroDivisionError("as it must")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    if headers.get(b"x-end") == b"leaves":
        assert (await receive())["type"] == "http.disconnect"
        return
    details = {"prompt_tokens_details": {"cached_tokens": 40}}
    usage = {"prompt_tokens": 100, "completion_tokens": 7, **details}
    await send({"type": "http.response.body", "body": json.dumps({"id": "1", "model": "m", "usage": usage}).encode()})


@pytest.fixture
def answers(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each question over the records of three ended requests and of a killed process."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", POD)
    config = configure(record_headers=HEADERS)
    records_of(config, [{"x-tenant": "acme", "x-session": "s-1"}, {"x-tenant": "b", "x-end": "leaves"}], BODY, answer)
    with pytest.raises(ZeroDivisionError):
        records_of(config, [{"x-tenant": "acme", "x-end": "fails"}], BODY, answer)
    for name in ("directory", "queue_directory"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    monkeypatch.setenv("INFERENCE_LOGGING_RECORD_HEADERS", ",".join(HEADERS))
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", KILLED]) == -signal.SIGKILL
    assert run("recover", str(config.queue_directory)).code == 0
    assert len(read_records(config.directory, "request")) == 4
    found = {}
    for name in QUESTIONS:
        done = run("query", "--example", name, str(config.directory), "--format", "json")
        assert (done.code, done.err) == (0, "")
        found[name] = [json.loads(line) for line in done.out.splitlines()]
    return found


def test_each_question_has_an_answer(answers: dict[str, list[dict[str, Any]]]) -> None:
    assert not [name for name, rows in answers.items() if not rows]
    tenants = {row["tenant"]: row["requests"] for row in answers["slow-tenants"]}
    assert tenants == {"acme": 3, "b": 1}
    tokens = {row["tenant"]: row for row in answers["tokens-by-tenant"]}
    assert [tokens["acme"][name] for name in ("input_tokens", "output_tokens", "cached_tokens")] == [100, 7, 40]
    rates = {row["route"]: row["abort_rate"] for row in answers["abort-rate-by-route"]}
    assert rates["/v1/chat/completions"] == pytest.approx(1 / 3)
    errors = {row["outcome"]: row["error"] for row in answers["errors-by-model"]}
    assert errors["error"] == "ZeroDivisionError"
    assert errors["process_died"] == "process_died"
    assert {"client_disconnect"} < set(errors)
    assert {(row["pod"], row["tenant"]) for row in answers["slowest-requests"]} == {("pod-7", "acme"), ("pod-7", "b")}
    assert [(row["pod"], row["node"], row["requests"]) for row in answers["slowest-pods"]] == [("pod-7", "node-3", 4)]
    prefixes = {row["prefix"]: row["hit_rate"] for row in answers["cache-hit-by-prefix"]}
    assert prefixes == {"s-1": pytest.approx(0.4)}
    hours = answers["models-over-time"]
    assert sum(row["requests"] for row in hours) == 4
    assert sum(row["failed"] for row in hours) == 2, "not the client that left"
    assert [(row["pod"], row["chunks"], row["bytes_sent"]) for row in answers["killed-in-flight"]] == [("pod-7", 3, 12)]


def test_a_request_counts_for_as_many_as_it_stands_for(tmp_path: Path) -> None:
    # Nine sampled ones of 10 ms stand for 90, the ten of a second for themselves: their share is a tenth.
    fast = [request(number, duration_s=0.01 + number / 1e5, adjusted_count=10.0) for number in range(9)]
    slow = [request(10 + number, duration_s=1.0 + number) for number in range(10)]
    write_segment(tmp_path, [*fast, *slow])
    done = run("query", "--example", "slow-tenants", str(tmp_path), "--format", "json")
    found = json.loads(done.out)
    assert (found["requests"], found["p50_s"], found["p99_s"]) == (100, pytest.approx(0.01004), pytest.approx(9.0))
    assert found["queued_p99_s"] is None
