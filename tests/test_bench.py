"""The benchmark runs and says what it is meant to say; with tiny sizes, and no figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
