"""The load tests measure what they say: traces are played as written, books are kept, missing records are found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.compare import arrivals, compare, demo, measure
from loadtests.compare.arrivals import Arrival
from loadtests.turns.bench_turns_rows import Block, Case

ROOT = Path(__file__).parents[2]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:15:51.2224670,879,55"
)


def a_load(requests: int, seconds: float = 1.0, cpu_s: float = 0.5) -> measure.Load:
    return measure.Load(requests, 0, seconds, 1.0, 2.0, cpu_s)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.servers
def test_a_trace_in_the_azure_format_starts_at_zero_and_keeps_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(AZURE.encode())
    read = arrivals.read(path)
    assert [arrival.at_s for arrival in read] == pytest.approx([0, 4.314579, 4.541877], abs=1e-6)
    assert [(arrival.context_tokens, arrival.generated_tokens) for arrival in read] == [
        (374, 44),
        (396, 109),
        (879, 55),
    ]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TIMESTAMP,Tokens\n2023-11-16 18:15:46,1", "the first line must be"),
        (AZURE.replace("396", "many"), "line 3: not an arrival"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no arrivals"),
    ],
)
def test_another_format_is_refused_by_file_and_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*{reason}"):
        arrivals.read(path)


@pytest.mark.servers
def test_fitting_scales_time_by_one_factor_and_caps_the_answers() -> None:
    trace = [Arrival(at_s, 10, 500) for at_s in (0.0, 1.0, 1.5, 9.0, 10.0, 50.0)]
    fitted = arrivals.fit(trace, rate=2.5, seconds=2.0, max_tokens=256)
    assert [arrival.at_s for arrival in fitted] == pytest.approx([0, 0.2, 0.3, 1.8, 2.0])
    assert {arrival.generated_tokens for arrival in fitted} == {256}


@pytest.mark.servers
def test_ratios_are_taken_within_a_round() -> None:
    none, ours = [a_load(1000), a_load(100)], [a_load(900), a_load(99)]
    row = compare.Row.of("ours", ours, none, measure.Books(1100, None))
    assert (row.rps_ratio.value, row.rps_ratio.low, row.rps_ratio.high) == pytest.approx((0.9439, 0.9, 0.99), rel=1e-3)
    assert row.cpu_ratio.value == pytest.approx(1 / 0.9439, rel=1e-3)


@pytest.mark.servers
def test_a_missing_record_unbalances_the_books() -> None:
    assert measure.Books(3, 3).balanced
    assert measure.Books(3, None).balanced
    assert not measure.Books(3, 2).balanced
    assert not measure.Books(3, 4).balanced
    assert measure.Books(3, 2).after(measure.Books(2, 2)) == measure.Books(5, 4)


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["none", "uvicorn-access", "stdlib-file", "stdlib-queue", "ours"])
def test_every_mode_serves_the_same_and_records_each_request_once(mode: str, tmp_path: Path) -> None:
    with measure.serving(mode, tmp_path / "logs", min(os.sched_getaffinity(0))) as server:
        assert server.request("/trivial", times=30) == b"ok"
        assert server.request("/stream64", times=5).count(b"data: ") == 64
        answer = json.loads(server.request("/v1/completions", {"max_tokens": 3}))
        assert answer["usage"]["completion_tokens"] == 3
        assert server.cpu_s() > 0
        books = server.stop()
    assert books == measure.Books(36, None if mode == "none" else 36)


@pytest.mark.servers
def test_a_directory_that_is_not_from_a_load_test_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(measure.ServerError, match="not empty"), measure.serving("none", tmp_path, 0):
        pass
    assert (tmp_path / "precious").exists()


@pytest.mark.servers
def test_an_open_loop_plays_every_arrival_and_reports_chunks(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    arrivals.generate(trace, count=30)
    with measure.serving("ours", tmp_path / "logs", min(os.sched_getaffinity(0))) as server:
        options = [f"--trace={trace}", "--trace-seconds=2", "--trace-rate=10", "--pace=1000", "--max-tokens=20"]
        result = measure.locust(server.url, options)["requests"]
        books = server.stop()
    expected = [min(20, arrival.generated_tokens) for arrival in arrivals.read(trace)[:20]]
    assert (result["chat"]["count"], result["chat"]["failures"]) == (20, 0)
    assert result["chat: time to first chunk"]["count"] == 20
    assert result["chat: gap between chunks"]["count"] == sum(expected)  # the last one to the usage
    assert books == measure.Books(20, 20)


@pytest.mark.servers
def test_compare_writes_a_report_and_finds_every_record(tmp_path: Path) -> None:
    options = ["--modes", "ours", "--scenarios", "trivial", "chat", "--rounds", "1", "--seconds", "4", "--users", "4"]
    done = run([sys.executable, "-m", "loadtests.compare.compare", *options, "--out", str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("records arrived = requests accepted") == 2
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<figure ") == 8


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_the_demo_shows_cost_records_health_books_and_places(tmp_path: Path) -> None:
    # The fewest turns of an interval: on a busy machine those of the demo take a minute.
    code = "import sys; from loadtests.compare import demo; sys.argv[0] = 'demo.py'; demo.LEAST_BLOCKS = 6; demo.main()"
    options = ["--cost-seconds", "1", "--seconds", "3", "--rate", "10", "--out", str(tmp_path)]
    done = run([sys.executable, "-c", code, *options])
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("JSON POST  ", "the control", '"event_name": "request"', '"event_name": "log"', '"status": "ok"'):
        assert text in done.stdout
    for text in ("records = requests: ", "segment ", "newest "):
        assert f"\n{text}" in done.stdout


@pytest.mark.servers
def test_the_cost_with_cold_caches_stands_beside_that_with_warm_ones() -> None:
    done = run([sys.executable, "-m", "loadtests.cost.bench_cold", "--quick"])
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("GET", "POST of JSON"):
        assert f"\n{kind}: what is added" in done.stdout
    for line in ("ours ÷ thinnest wrapper, nothing copied before", "ours ÷ thinnest wrapper, 4 MiB copied before"):
        assert done.stdout.count(f"\n{line} ") == 2


@pytest.mark.servers
def test_a_cost_that_is_there_is_found_by_turns() -> None:
    blocks: list[Block] = [(100_000, 110_000, 100_000)] * 40
    name, unlogged, added, ratio, control = demo.cost(Case("a", 10), blocks)
    assert (name, unlogged, added) == ("a", "10.0 µs", "1.00 ± 0.00 µs")
    assert (ratio, control) == ("1.1000 (1.1000…1.1000)", "1.0000 (1.0000…1.0000)")
