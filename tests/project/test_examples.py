"""The examples run as they stand, and the real OpenAI client talks to the example server."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionStreamOptionsParam

from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.py"))
SERVER = Path(__file__).parents[2] / "examples" / "fastapi"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]
STOP_DEADLINE_S = 60


class Served:
    """The example server in a process of its own, and what it has recorded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "segments"
        environment = {
            **os.environ,
            "INFERENCE_LOGGING_DIRECTORY": str(self.directory),
            "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(directory / "queues"),
            "INFERENCE_LOGGING_FLUSH_INTERVAL_S": "0.05",
        }
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:  # a request waits here until it is up
            self.port: int = listening.getsockname()[1]
            descriptor = str(listening.fileno())
            command = [sys.executable, "-m", "uvicorn", "--app-dir", str(SERVER), "app:app"]
            self.process = subprocess.Popen(
                [*command, "--fd", descriptor, "--log-level", "warning"], pass_fds=[int(descriptor)], env=environment
            )
        self.client = OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0, timeout=180)

    def stop(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_DEADLINE_S)

    def requests(self) -> list[dict[str, Any]]:
        return read_records(self.directory, "request") if self.directory.is_dir() else []

    def record_where(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        found = wait_until(lambda: [record for record in self.requests() if condition(record)], "a record")
        assert len(found) == 1
        record: dict[str, Any] = found[0]
        return record


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.stop()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_short_and_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert re.search("Run:|``python", ast.get_docstring(ast.parse(text)) or "")


def test_the_openai_client_gets_a_chat_answer_of_the_length_it_asks_for(served: Served) -> None:
    answer = served.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5)
    assert answer.object == "chat.completion"
    assert answer.model == "tiny"
    assert answer.choices[0].message.content == "word1 word2 word3 word4 word5 "
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 5 + answer.usage.prompt_tokens)


def test_the_openai_client_gets_a_completion_with_several_choices(served: Served) -> None:
    answer = served.client.completions.create(model="tiny", prompt="hello", max_tokens=2, n=3)
    assert answer.object == "text_completion"
    assert [(choice.index, choice.text) for choice in answer.choices] == [(i, "word1 word2 ") for i in range(3)]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_the_openai_client_reads_a_chat_stream_that_ends_with_usage(served: Served) -> None:
    create = served.client.chat.completions.create
    usage: ChatCompletionStreamOptionsParam = {"include_usage": True}
    with create(model="tiny", messages=HELLO, max_tokens=4, stream=True, stream_options=usage) as stream:
        *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "word1 word2 word3 word4 "
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "length"]
    assert last.usage is not None
    assert (last.choices, last.usage.completion_tokens) == ([], 4)
    assert {(chunk.object, chunk.id) for chunk in chunks} == {("chat.completion.chunk", last.id)}


def test_the_openai_client_reads_a_completion_stream_without_usage_unless_it_asks(served: Served) -> None:
    with served.client.completions.create(model="tiny", prompt="hello", max_tokens=3, n=2, stream=True) as stream:
        chunks = list(stream)
    texts = [choice.text for chunk in chunks for choice in chunk.choices if choice.index == 1]
    assert texts == ["word1 ", "word2 ", "word3 "]
    assert all(chunk.usage is None for chunk in chunks)


def test_each_answer_leaves_a_request_record_and_an_application_record_with_its_ids(served: Served) -> None:
    for tokens in (3, 5):
        served.client.completions.create(model="tiny", prompt="hello", max_tokens=tokens)
        list(served.client.completions.create(model="tiny", prompt="hello", max_tokens=tokens, stream=True))
    served.stop()
    requests, logs = (read_records(served.directory, event) for event in ("request", "log"))
    assert [record["outcome"] for record in requests] == ["ok"] * 4
    assert [record["http.route"] for record in requests] == ["/v1/completions"] * 4
    assert sorted(record["chunks"] for record in requests if "chunks" in record) == [3, 5]  # words
    assert {record["request_id"] for record in logs} == {record["request_id"] for record in requests}
    assert {record["message"] for record in logs} == {"generation started"}


def test_a_record_says_what_was_asked_and_what_was_used(served: Served) -> None:
    served.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=7)
    served.stop()
    record = read_records(served.directory, "request")[0]
    assert record["gen_ai.request.model"] == "tiny"
    assert record["gen_ai.request.max_tokens"] == 7
    assert record["gen_ai.usage.output_tokens"] == 7
    assert record["gen_ai.response.finish_reasons"] == ["length"]


def test_the_pace_follows_the_request(served: Served) -> None:
    body = {"tokens_per_second": 50}
    list(served.client.completions.create(model="tiny", prompt="x", max_tokens=10, stream=True, extra_body=body))
    record = served.record_where(lambda _: True)
    assert record["duration_s"] >= 0.9 * 10 / 50  # never earlier; how much later is the machine's affair


def test_a_client_that_leaves_a_stream_ends_the_generation(served: Served) -> None:
    body = {"tokens_per_second": 100}
    create = served.client.chat.completions.create
    with create(model="tiny", messages=HELLO, max_tokens=100_000, stream=True, extra_body=body) as stream:
        next(iter(stream))
    record = served.record_where(lambda record: record["outcome"] == "client_disconnect")
    assert 1 <= record["chunks"] < 100_000


def test_a_client_that_leaves_before_its_answer_ends_the_generation(served: Served) -> None:
    body = b'{"max_tokens": 100000, "tokens_per_second": 100}'
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        wait_until(
            lambda: served.directory.is_dir() and read_records(served.directory, "log"), "the generation's start"
        )
    assert served.record_where(lambda _: True)["outcome"] == "client_disconnect"


def test_application_records_shows_three_ways_in(tmp_path: Path) -> None:
    output = run("application_records", tmp_path)
    assert "INFO engine model loaded" in output
    place = "'code.file.path', 'code.function.name', 'code.line.number'"
    assert f"WARN tokenizer vocabulary of 32000 words, padded [{place}, 'padded_to']" in output
    assert "ERROR engine scheduler step failed" in output
    assert len(read_records(tmp_path / "logs")) == 3


def test_bare_logger_writes_what_it_accepts(tmp_path: Path) -> None:
    output = run("bare_logger", tmp_path)
    written = int(output.split(" ")[0].replace(",", ""))
    steps = read_records(tmp_path / "logs", "engine.step")
    assert len(steps) == written
    assert steps[-1]["note"] == {"encoded": "already"}


def test_audit_records_are_committed_in_a_chain(tmp_path: Path) -> None:
    output = run("audit_records", tmp_path)
    assert [line for line in output.splitlines() if "committed" in line] == [
        f"{user}: committed" for user in ("alice", "bob", "mallory")
    ]
    found = read_records(tmp_path / "logs" / "audit")
    assert [record["event_name"] for record in found[:6]] == ["policy.decision"] * 3 + ["billing.tokens"] * 3
    assert all("chain" in record for record in found)


def run(example: str, directory: Path) -> str:
    """Run an example from another directory, as a user would; its default directory is the current one's logs."""
    script = next(path for path in EXAMPLES if path.parent.name == example)
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(directory / "queues")}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
