"""The benchmarks of loadtests/ at their smallest: what is measured is there, and no figure is judged here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.interval import Interval
from inference_logging.record.integrations.triton import requests
from loadtests.cost import request_sizes
from loadtests.cost.growth import PROCESSES, QUANTITIES, RECORD_BYTES, THREADS, Quantity, Sample, series_of, take_turns
from loadtests.engine.bench_triton import BASE, COSTS, WAYS, by_rounds, make_models
from loadtests.engine.bench_vllm import Shape, load
from loadtests.harness import MANY, Figure
from loadtests.turns import bench_ab
from tests.integrations.vllm_server import require_vllm
from tests.kit import fake_triton
from tests.kit.support import read_records

SIZES = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text(encoding="utf-8")


def run_bench(tmp_path: Path, *sections: str) -> tuple[str, dict[str, Any]]:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "loadtests.cost.bench", *sections, "--quick", "--json", str(result)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, timeout=240).stdout
    return output, json.loads(result.read_text(encoding="utf-8"))


@pytest.mark.servers
@pytest.mark.parametrize("section", ["listener", "sidecar", "verify", "audit"])
def test_each_section_prints_its_goals_with_a_mark(section: str, tmp_path: Path) -> None:
    output, found = run_bench(tmp_path, section)
    judged = [figure for figure in found["sections"][section]["figures"] if figure["goal"]]
    assert judged
    for figure in judged:
        line = next(line for line in output.splitlines() if line.startswith(f"{figure['name']} "))
        assert line.endswith(": reached") == figure["reached"], line
    assert f"of {len(judged)} goals reached" in output


@pytest.mark.servers
@pytest.mark.parametrize("name", request_sizes.SHAPES)
def test_the_page_of_sizes_says_what_a_request_takes_in_queue_and_segment(name: str) -> None:
    (row,) = (line.split("|")[2:4] for line in SIZES.splitlines() if line.startswith(f"| {name} |"))
    queue, segment = (float(cell.replace(",", "")) for cell in row)
    input_tokens, output_tokens, config = request_sizes.SHAPES[name]
    size = request_sizes.measure(config, input_tokens, output_tokens, requests=100)
    assert size.queue_bytes == pytest.approx(queue, rel=0.02)
    # Gaps between chunks have more digits on a busy machine.
    assert size.segment_bytes == pytest.approx(segment, rel=0.3)
    assert 0 < size.compressed_bytes < size.segment_bytes


@pytest.mark.servers
def test_a_known_cost_is_judged_without_what_the_middleware_itself_costs() -> None:
    nothing, extra = (bench_ab.Found(0.002, Interval(value, value - 0.003, value + 0.003)) for value in (0.01, 0.06))
    found, injected = bench_ab.judged(extra, nothing)
    assert [found.value, injected] == pytest.approx([0.05, 0.05])
    assert found.half == pytest.approx(0.003 * 2**0.5)
    row = bench_ab.row(extra, nothing)
    assert row["ours"] == "found +5.00% (+4.58% … +5.42%), injected +5.00%"
    assert row["beside"] == "nothing injected: +1.00% (+0.70% … +1.30%)"


@pytest.mark.servers
def test_every_quantity_is_measured_and_every_record_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFERENCE_LOGGING_SERVER_RECORD")  # as by hand
    result = tmp_path / "growth.json"
    command = [sys.executable, "-m", "loadtests.cost.growth", "--quick", "--json", str(result)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=240).stdout
    found = json.loads(result.read_text(encoding="utf-8"))
    for quantity, series in zip(QUANTITIES, found["growth"], strict=True):
        assert [point["x"] for point in series["points"]] == list(quantity.quick_places)
        assert series["accepted"] == series["arrived"] > 0
        assert f"{series['sentence']}\n" in output


def samples(quantity: Quantity, added: float, control: float = 1.0, lost: int = 0) -> dict[int, list[Sample]]:
    """Return what 7 rounds found: the last place's figures are so many times the first one's, with noise of 1 %."""
    noise = random.Random(1)
    found: dict[int, list[Sample]] = {}
    places = quantity.places
    for place in (places[0], places[-1]):
        times = (1.0, 1.0) if place == places[0] else (added, control)
        found[place] = []
        for _ in range(7):
            base = 50 * times[1] * noise.gauss(1, 0.01)
            logged = base + 40 * times[0] * noise.gauss(1, 0.01)
            found[place].append(Sample(logged, base, 1000, 1000 - lost))
    return found


@pytest.mark.servers
def test_what_does_not_grow_is_said_not_to_grow() -> None:
    series = series_of(PROCESSES, samples(PROCESSES, 1.0))
    assert "it does not grow, as far as this run knows." in series["sentence"]
    assert series["growth"] is not None
    assert series["growth"]["low"] < 1 < series["growth"]["high"]


@pytest.mark.servers
def test_what_grows_with_the_control_is_said_to_grow_no_more_than_that() -> None:
    sentence = series_of(PROCESSES, samples(PROCESSES, 1.2, 1.2))["sentence"]
    assert "it grows no more than the same work without logging, as far as this run knows." in sentence


@pytest.mark.servers
def test_what_grows_by_itself_is_said_to_with_its_slope() -> None:
    series = series_of(RECORD_BYTES, samples(RECORD_BYTES, 100.0))
    assert series["sentence"].startswith(
        "From 100 B to 64 KiB of text in a record, what logging adds to a call goes from"
    )
    assert series["growth"] is not None
    assert series["growth"]["value"] == pytest.approx(100, rel=0.05)
    slope = re.search(r", ([0-9.]+) ns for each further KiB\.", series["sentence"])
    assert slope is not None
    assert float(slope[1]) == pytest.approx(40 * 99 / 63.9, rel=0.05)


@pytest.mark.servers
def test_what_falls_is_said_to_fall() -> None:
    assert "it falls." in series_of(THREADS, samples(THREADS, 0.5))["sentence"]


@pytest.mark.servers
def test_where_logging_took_no_longer_than_the_control_nothing_is_claimed() -> None:
    found = samples(THREADS, 1.0)
    found[THREADS.places[0]][2] = found[THREADS.places[0]][2]._replace(logged_ns=1.0)
    series = series_of(THREADS, found)
    assert series["growth"] is None
    assert "not measured, since in some round the work with logging took no longer than without." in series["sentence"]


@pytest.mark.servers
def test_records_that_did_not_arrive_are_said() -> None:
    sentence = series_of(THREADS, samples(THREADS, 1.0, lost=1))["sentence"]
    assert "Of 14,000 accepted records 13,986 arrived." in sentence


@pytest.mark.servers
def test_both_works_are_done_equally_often_and_settled_between() -> None:
    done: list[str] = []
    take_turns(lambda: done.append("logged"), lambda: done.append("control"), lambda: done.append("|"), 3)
    assert "".join(done) == "control|logged|logged|control|control|logged|logged|control|"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the model repository, for a Triton in this process."""
    fake_triton.install(monkeypatch)
    logger = types.SimpleNamespace(log_info=lambda text: _append(tmp_path / "triton.log", text))
    monkeypatch.setattr(sys.modules["triton_python_backend_utils"], "Logger", logger, raising=False)
    for name, folder in (("DIRECTORY", "logs"), ("QUEUE_DIRECTORY", "queues")):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name}", str(tmp_path / folder))
    monkeypatch.setenv("INFERENCE_LOGGING_TRITON_TENSORS", "on")
    monkeypatch.setenv("BENCH_DIRECTORY", str(tmp_path))
    make_models(tmp_path / "models")
    return tmp_path / "models"


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def answered(models: Path, name: str, times: int = 3) -> list[Any]:
    """Let the model of this name answer requests."""
    model = runpy.run_path(str(models / name / "1" / "model.py"))["TritonPythonModel"]()
    model.initialize(fake_triton.arguments())
    asked = [fake_triton.request(fake_triton.Tensor("X", [1.0, 2.0]), name=str(number)) for number in range(times)]
    answers = model.execute(asked)
    model.finalize()
    return [answer.output_tensors()[0].as_numpy().tolist() for answer in answers]


@pytest.mark.parametrize("name", [BASE, *WAYS])
def test_each_way_answers_with_what_was_sent_and_leaves_a_line_for_each_request(models: Path, name: str) -> None:
    assert answered(models, name) == [[1.0, 2.0]] * 3
    logs = models.parent / "logs"
    records = read_records(logs, "request") if logs.exists() else []
    lines = [line for path in models.parent.glob("*.log") for line in path.read_text().splitlines()]
    assert len(records) == (3 if name.startswith("ours") else 0)
    assert len(lines) == (0 if name == BASE or name.startswith("ours") else 3)


def test_the_model_that_measures_inside_has_a_figure_for_each_way(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    (taken,) = answered(models, "cost", times=1)
    rounds = by_rounds(taken)
    assert {len(one) for one in rounds} == {len(COSTS)}
    assert min(taken) > 0


def test_the_fields_whose_cost_is_measured_are_those_that_a_record_reads(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils, called = sys.modules["triton_python_backend_utils"], list[str]()

    def noted(name: str, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def note(one: Any) -> Any:
            called.append(name)
            return method(one)

        return note

    described = json.loads((arguments := fake_triton.arguments())["model_config"])
    arguments["model_config"] = json.dumps({**described, "input": described["input"][:1]})
    for kind in (utils.InferenceRequest, utils.InferenceResponse, utils.Tensor):
        for name, method in list(vars(kind).items()):
            if name[0] != "_":
                monkeypatch.setattr(kind, name, noted(name, method))
    monkeypatch.setattr(requests, "server_traces", lambda _command_line: False)
    asked, answer = fake_triton.request(fake_triton.Tensor("X", [1.0])), fake_triton.ok()
    log = requests.RequestLog(arguments)
    log.end(log.begin([asked]), [answer])
    recorded = sorted(called)
    log.close()
    called.clear()
    for read in runpy.run_path(str(models / "cost" / "1" / "model.py"))["field_calls"](asked, answer):
        read()
    assert sorted(called) == recorded


def test_of_many_rounds_the_interval_is_printed_and_of_few_the_lowest_and_highest() -> None:
    values = [float(number) for number in range(MANY)]
    few, many = Figure("", "", values[1:]).found, Figure("", "", values).found
    assert (few.low, few.high) == (1, MANY - 1)
    assert 0 < many.low < many.value < many.high < MANY - 1


STREAMED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    b"9\r\ndata: 1\n\n\r\n",
    b'24\r\ndata: {"finish_reason":"length"}\n\n\r\n0\r\n',
    b"\r\n",
)
WHOLE = (b"HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n", b'{"finish_reason"', b':"length"}')


def loaded(*parts: bytes) -> None:
    """Send three requests to a server that answers each with these parts, one write after another."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.rpartition(b": ")[2]))
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.01)

    async def served() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            seen = await asyncio.to_thread(load, port, Shape("one", 16, False, 3), 3)
            assert 0 < seen.first_ms / 1e3 < seen.wall_s

    asyncio.run(served())


@pytest.mark.parametrize("parts", [STREAMED, WHOLE])
def test_an_answer_is_read_to_its_end_however_the_reads_cut_it(parts: tuple[bytes, ...]) -> None:
    loaded(*parts)


def test_an_answer_with_fewer_tokens_than_asked_for_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="not what was asked for"):
        loaded(*(part.replace(b'"length"', b'"stop"  ') for part in WHOLE))


@pytest.mark.vllm
@pytest.mark.lengthy
def test_each_section_loads_a_real_vllm_and_finds_a_record_for_each_request(tmp_path: Path) -> None:
    require_vllm()
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "loadtests.engine.bench_vllm", "--modes", "ours", "stdlib-queue"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([*command, "--quick", "--json", str(result)], check=True, env=environment)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    judged = [figure["name"] for report in found["sections"] for figure in report["figures"] if figure["goal"]]
    assert len(judged) == 6
