"""The statement of `export`, on what servers really wrote: what is in the file, what is not and why, and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.cli.export import command
from inference_logging.cli.main import COMMANDS
from tests.command_line import Done, run
from tests.export_books import verify_in_process
from tests.support import Client, Recorded, answer, body_messages, http_scope, replying

__all__ = ["verify_in_process"]

Configure = Callable[..., Config]

JSON_HEADERS = [(b"content-type", b"application/json")]
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
ANSWER = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}, "choices": []}).encode()


def serve(recorded: Recorded, count: int = 1) -> None:
    app = replying(*answer(ANSWER, content_type=b"application/json"))
    for _ in range(count):
        recorded.serve(app, http_scope("/v1/chat/completions", "POST", JSON_HEADERS), body_messages(BODY))


def export(config: Config, *options: str, form: str = "mooncake") -> tuple[Done, dict[str, Any]]:
    """Return the command's end, and the statement; the trace is its standard output."""
    path = config.directory / "statement.json"
    queues = f"--queue-directory={config.resolved_queue_directory}"
    done = run("export", str(config.directory), "--format", form, "-o", "-", "--statement", str(path), queues, *options)
    return done, json.loads(path.read_text())


def test_of_a_closed_server_everything_is_exported_and_the_statement_says_so(
    recording: Callable[..., Recorded],
) -> None:
    recorded = recording()
    serve(recorded, 5)
    assert get_logger("t").info("not a request")
    recorded.close()
    # With the process of its own that users have.
    done, statement = export(recorded.config, "--require-complete")
    assert (done.code, len(done.out.splitlines())) == (0, 5)
    assert (statement["complete"], statement["faults"]) == (True, [])
    assert [statement["requests"][name] for name in ("read", "exported", "filtered_out", "stands_for")] == [
        5,
        5,
        0,
        5.0,
    ]
    assert [statement["records"][name] for name in ("accepted", "written", "lost", "missing")] == [6, 6, 0, 0]
    assert "complete: nothing lost, nothing missing" in done.err


@pytest.mark.usefixtures("verify_in_process")
def test_a_removed_line_is_missing_and_complete_is_not_claimed(recording: Callable[..., Recorded]) -> None:
    recorded = recording()
    serve(recorded, 5)
    recorded.close()
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:2] + lines[3:]))
    done, statement = export(recorded.config)
    assert (done.code, statement["complete"], statement["requests"]["exported"]) == (0, False, 4)
    assert statement["records"]["missing"] == 1
    assert any("1 records: line_removed" in fault for fault in statement["faults"])
    done, _ = export(recorded.config, "--require-complete")
    assert (done.code, len(done.out.splitlines())) == (1, 4)
    later, statement = export(recorded.config, "--require-complete", "--since", "2199-01-01")
    assert (later.code, later.out, statement["requests"]["read"]) == (0, "", 0), "nothing of that time is missing"


@pytest.mark.usefixtures("verify_in_process")
def test_records_that_were_refused_are_named_with_their_reason(configure: Configure) -> None:
    config = configure(max_record_bytes=12288)
    with Logger(config):
        assert not get_logger("t").info("x" * 100_000)
    done, statement = export(config, "--require-complete")
    assert (done.code, statement["records"]["dropped"]) == (1, {"oversize": 1})
    assert any(fault.endswith("1 records refused: oversize") for fault in statement["faults"])


@pytest.mark.usefixtures("verify_in_process")
def test_records_that_still_wait_in_a_queue_are_not_claimed(configure: Configure) -> None:
    config = configure(listener="external")
    config.directory.mkdir()
    with Logger(config.model_copy(update={"listener": "thread"})):
        get_logger("t").info("written")
    child = os.fork()
    if child == 0:
        try:
            Logger(config)
            get_logger("t").info("waits")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    done, statement = export(config, "--require-complete")
    assert (done.code, statement["records"]["in_queue"]) == (1, 1)
    assert any(fault.endswith("1 records wait in its queue") for fault in statement["faults"])


@pytest.mark.usefixtures("verify_in_process")
def test_what_sampling_left_out_is_counted_and_the_rest_has_its_weight(recording: Callable[..., Recorded]) -> None:
    recorded = recording(sample_ratio=0.5)
    serve(recorded, 60)
    recorded.close()
    done, statement = export(recorded.config, "--require-complete")
    requests = statement["requests"]
    assert (done.code, statement["complete"]) == (0, True)
    assert requests["exported"] + statement["records"]["sampled_out"]["head"] == 60
    assert requests["stands_for"] == 2 * requests["exported"]


@pytest.mark.usefixtures("verify_in_process")
def test_a_request_whose_process_was_killed_is_exported_with_how_far_it_came(configure: Configure) -> None:
    config = configure()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_stream_until_killed(config, write_end))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.read(read_end, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with Logger(config):
        pass
    done, statement = export(config, "--require-complete", form="perfetto")
    assert (done.code, statement["requests"]["by_outcome"]) == (0, {"process_died": 1})
    events = json.loads(done.out)["traceEvents"]
    (whole,) = (event for event in events if event.get("cat") == "request")
    assert (whole["args"]["chunks"], whole["args"]["outcome"]) == (2, "process_died")
    (end,) = (event for event in events if event.get("cat") == "end")
    assert (end["name"], end["ts"]) == ("process_died", whole["dur"])


async def _stream_until_killed(config: Config, write_end: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        os.write(write_end, b"x")
        await asyncio.sleep(600)

    client = Client([])
    with Logger(config):
        await InferenceLoggingMiddleware(app, config=config)(http_scope("/stream"), client.receive, client.send)


@pytest.mark.usefixtures("verify_in_process")
def test_damaged_lines_are_counted_and_named(recording: Callable[..., Recorded]) -> None:
    recorded = recording()
    serve(recorded, 2)
    recorded.close()
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    segment.write_bytes(segment.read_bytes().replace(b'"pid"', b'"pid', 1))
    done, statement = export(recorded.config, "--require-complete")
    assert (done.code, statement["records"]["damaged_lines"]) == (1, 1)
    assert "not JSON" in done.err


@pytest.mark.parametrize("form", ["mooncake", "openai-jsonl"])
@pytest.mark.usefixtures("verify_in_process")
def test_what_is_captured_is_what_is_exported_and_the_arrival_is_when_it_came(
    form: str, recording: Callable[..., Recorded]
) -> None:
    import time

    recorded = recording(capture_input="full", capture_output="full")
    before = time.time()
    serve(recorded)
    after = time.time()
    recorded.close()
    done, statement = export(recorded.config, form=form)
    line = json.loads(done.out)
    arrival = statement["requests"]["first_arrival"]
    if form == "openai-jsonl":
        assert (line["body"], line["body_source"]) == (json.loads(BODY), "messages")
        assert before - 0.001 <= line["arrival_unix_nano"] / 1e9 <= after
    else:
        assert (line["input_length"], line["output_length"], line["timestamp"]) == (7, 3, 0)
    assert arrival is not None


def test_the_examples_of_the_help_run(recording: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recording(capture_input="full", capture_output="full")
    serve(recorded)
    recorded.close()
    monkeypatch.chdir(recorded.config.directory.parent)
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(recorded.config.directory))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(recorded.config.resolved_queue_directory))
    Path("logs").symlink_to(recorded.config.directory)
    _, _, shown = (command.epilog or "").partition("Examples:\n")
    examples = [line.strip() for line in shown.splitlines()]
    assert COMMANDS["export"].example in examples
    for example in examples:
        done = run(*shlex.split(example)[1:])
        # Only "llama" is asked for by one of them, which this server did not serve.
        assert done.code == 0, done.err
        assert "requests: 1 read" in done.err
