"""The benchmark runs and says what it is meant to say; with tiny sizes, and no figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.interval import Interval
from loadtests.cost import request_sizes
from loadtests.turns import bench_ab

SIZES = (Path(__file__).parent.parent / "docs" / "sizing.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.servers


def run_bench(tmp_path: Path, *sections: str) -> tuple[str, dict[str, Any]]:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "loadtests.cost.bench", *sections, "--quick", "--json", str(result)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, timeout=240).stdout
    return output, json.loads(result.read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", ["listener", "sidecar", "verify", "audit"])
def test_each_section_prints_its_goals_with_a_mark(section: str, tmp_path: Path) -> None:
    output, found = run_bench(tmp_path, section)
    figures = found["sections"][section]["figures"]
    judged = [figure for figure in figures if figure["goal"]]
    assert judged
    for figure in judged:
        line = next(line for line in output.splitlines() if line.startswith(f"  {figure['name']} "))
        assert line.endswith(": reached") == figure["reached"], line
        assert ("NOT REACHED, off by" in line) == (not figure["reached"]), line
    assert f"of {len(judged)} goals reached" in output


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_bench(tmp_path, "speed")


@pytest.mark.parametrize("name", request_sizes.SHAPES)
def test_the_page_of_sizes_says_what_a_request_takes_in_queue_and_segment(name: str) -> None:
    (row,) = (line.split("|")[2:4] for line in SIZES.splitlines() if line.startswith(f"| {name} |"))
    queue, segment = (float(cell.replace(",", "")) for cell in row)
    input_tokens, output_tokens, config = request_sizes.SHAPES[name]
    size = request_sizes.measure(config, input_tokens, output_tokens)
    assert size.queue_bytes == pytest.approx(queue, rel=0.02)
    assert size.segment_bytes == pytest.approx(segment, rel=0.1)
    assert 0 < size.compressed_bytes < size.segment_bytes


def test_a_known_cost_is_judged_without_what_the_middleware_itself_costs() -> None:
    def run(extra_us: float, value: float) -> bench_ab.Run:
        difference = Interval(value, value - 0.003, value + 0.003).as_json()
        return bench_ab.Run(extra_us, {name: {"off": 0.002, "difference": difference} for name in bench_ab.JUDGED}, 20)

    runs = {0.0: run(0.0, 0.01), 0.05: run(100.0, 0.06)}
    found, injected = bench_ab.judged(bench_ab.JUDGED[0], runs[0.05], runs[0.0])
    assert [found.value, injected] == pytest.approx([0.05, 0.05])
    assert found.half == pytest.approx(0.003 * 2**0.5)
    (row,) = bench_ab.rows(runs)
    assert row["ours"] == "found +5.00% (+4.58% … +5.42%), injected +5.00%"
    assert row["beside"] == "nothing injected: +1.00% (+0.70% … +1.30%)"
