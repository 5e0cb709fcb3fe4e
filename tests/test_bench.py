"""The benchmark runs and says what it is meant to say; with tiny sizes, and no figure is judged here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.servers

BENCH = Path(__file__).resolve().parent.parent / "loadtests" / "bench.py"


def run_bench(tmp_path: Path, *sections: str) -> tuple[str, dict[str, Any]]:
    result = tmp_path / "result.json"
    command = [sys.executable, str(BENCH), *sections, "--quick", "--json", str(result)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, timeout=240).stdout
    return output, json.loads(result.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "section",
    [
        "emit",
        "start",
        "stdlib",
        "tail",
        "throughput",
        "cpu",
        "listener",
        "sidecar",
        "verify",
        "audit",
        "middleware",
        "identity",
        "flight",
    ],
)
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


def test_each_feature_has_a_figure_and_all_of_them_together(tmp_path: Path) -> None:
    _, found = run_bench(tmp_path, "features")
    names = [figure["name"] for figure in found["sections"]["features"]["figures"]]
    assert {"response_header", "slow_s", "the middleware with all of these on, in all"} <= set(names)
    assert len(names) == len(set(names))


def test_each_feature_of_identity_has_a_figure_beside_a_control_and_the_goal_is_judged(tmp_path: Path) -> None:
    _, found = run_bench(tmp_path, "identity")
    figures = {figure["name"]: figure for figure in found["sections"]["identity"]["figures"]}
    assert {"record_headers, 3", "metrics_tenants", "control: the same twice, over all of these"} <= set(figures)
    assert [name for name, figure in figures.items() if figure["goal"]] == ["resource and record_headers, 3"]
    assert figures["resource and record_headers, 3"]["goal"]["bound"] == 0.15
    assert all(figure["low"] <= figure["median"] <= figure["high"] for figure in figures.values())


def test_the_capture_of_texts_has_figures_for_the_request_and_for_the_listener(tmp_path: Path) -> None:
    _, found = run_bench(tmp_path, "capture")
    names = [figure["name"] for figure in found["sections"]["capture"]["figures"]]
    assert {"added per event", "listener: per request, capture on"} <= set(names)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_real_server_is_loaded_and_its_records_counted(tmp_path: Path) -> None:
    output, found = run_bench(tmp_path, "uvicorn")
    names = [figure["name"] for figure in found["sections"]["uvicorn"]["figures"] if figure["goal"]]
    assert names == ["/trivial: ours ÷ none, req/s", "/stream64: ours ÷ none, req/s"]
    assert "as many records are in its segments" in output


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_bench(tmp_path, "speed")
