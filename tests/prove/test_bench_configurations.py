"""The cost of a changed configuration: what is counted, what counts as a difference, what is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from inference_logging.cli.bench import command
from inference_logging.prove.bench import configurations as bench
from inference_logging.prove.bench.configurations import Comparison, Figure, compare, markdown
from inference_logging.prove.bench.configurations_round import CHUNKS, GET, KINDS, LOGGED, POST, STREAM
from inference_logging.read.stats.interval import Interval

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "docs" / "configuration-changes.md"
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a configuration file."""

    def file(name: str, content: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"version: 1\n{content}")
        return path

    return file


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command, [*map(str, arguments), "--seconds", "0.01", "--rounds", "1"])


def values(comparison: Comparison, kind: str, name: str) -> tuple[float, float]:
    figure = comparison.figure(kind, name)
    assert figure is not None
    return figure.old.value, figure.new.value


def test_records_and_bytes_are_those_of_each_file(write: Write) -> None:
    new = "chunks: events\ncapture_input: full\n"
    comparison = compare(write("new", new), write("old", ""), 0, 1)
    assert values(comparison, GET.name, bench.RECORDS) == (1, 1)
    assert values(comparison, STREAM.name, bench.RECORDS) == (1, 1 + CHUNKS)
    records = comparison.figure(STREAM.name, bench.RECORDS)
    assert records is not None
    assert (records.is_seen, records.resolves) == (True, 0)
    for kind in (POST.name, STREAM.name):
        old, later = values(comparison, kind, bench.BYTES)
        assert 300 < old < later
    assert comparison.remarks == []


def a_round(cost: dict[str, float], bytes_: dict[str, float]) -> dict[str, Any]:
    def arm(name: str) -> dict[str, float | None]:
        own = {"listener_us": 1.0, "listener_us_per_record": None, "bytes": bytes_[name], "records": 1.0}
        return {"cpu_us": 10 + cost[name], **own}

    batch = {"none": {"cpu_us": 10.0}, **{name: arm(name) for name in LOGGED}}
    kinds = {kind.name: {"batches": [batch] * 20} for kind in KINDS}
    return {"kinds": kinds, "dropped": dict.fromkeys(LOGGED, 0)}


def test_a_known_cost_is_found_without_that_of_the_application() -> None:
    measured = a_round({"old": 2.0, "new": 2.5, "control": 2.0}, {"old": 800, "new": 1000, "control": 800})
    found = {(figure.kind, figure.name): figure for figure in bench.figures([measured, measured])}
    cpu, size = found[GET.name, bench.REQUEST_CPU], found[GET.name, bench.BYTES]
    assert (cpu.old.value, cpu.new.value, cpu.difference.value, cpu.control.value) == pytest.approx((2, 2.5, 0.5, 0))
    assert (size.old.value, size.new.value, size.difference.value) == (800, 1000, 200)
    assert (GET.name, bench.RECORD_CPU) not in found
    # The same for a stream as for a GET: nothing of it is the chunks'.
    assert found[STREAM.name, bench.CHUNK_CPU].new.value == 0


@pytest.mark.parametrize(
    ("difference", "control", "seen"),
    [
        (Interval(0.5, 0.4, 0.6), Interval(0.0, -0.1, 0.1), True),
        (Interval(-0.5, -0.6, -0.4), Interval(0.0, -0.1, 0.1), True),
        (Interval(0.5, -0.1, 1.1), Interval(0.0, -0.1, 0.1), False),
        (Interval(0.5, 0.4, 0.6), Interval(-0.3, -0.7, 0.1), False),
    ],
)
def test_a_difference_counts_if_it_is_without_0_and_above_the_control(
    difference: Interval, control: Interval, seen: bool
) -> None:
    one = Interval(2.0, 1.9, 2.1)
    figure = Figure(GET.name, bench.REQUEST_CPU, one, one, difference, control)
    assert figure.is_seen is seen
    assert figure.resolves == max(abs(control.low), abs(control.high))
    shown = markdown(Comparison(Path("new.yaml"), Path("old.yaml"), [figure], ["new: a remark"]))
    assert ("none seen" in shown) is not seen
    assert ("no difference seen for a GET" in shown) is not seen
    assert "* new: a remark" in shown


def test_what_cannot_be_had_here_is_replaced_and_named(write: Write, tmp_path: Path) -> None:
    old = write("old", "directory: /proc/no-directory-can-be-made-here\n")
    new = write("new", f"""
sink: udp://log.example:514
additional_sinks: [stdout, "file://{tmp_path}/copies"]
listener: external
compress: zstd
quota_bytes: 1GiB
fallback: {tmp_path}/fallback
audit: 'on'
capture_output: hash
capture_hash_key_file: /none/key
""")  # fmt: skip
    comparison = compare(new, old, 0, 1)
    assert values(comparison, GET.name, bench.RECORDS) == (1, 1)
    named = [remark.partition(":")[2].split("`")[1].partition(":")[0] for remark in comparison.remarks]
    assert named == [
        "sink", "additional_sinks", "listener", "audit", "compress", "quota_bytes", "capture_hash_key_file"
    ]  # fmt: skip
    assert all(remark.startswith("new: ") for remark in comparison.remarks)
    assert '`sink: "udp://log.example:514"` is a scratch directory here' in comparison.remarks[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.yaml", "old.yaml"]


def test_the_command_prints_markdown_with_what_differs(write: Write) -> None:
    old, new = write("old", ""), write("new", "chunks: events\n")
    result = called("--config", new, "--against", old)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("## The cost of new.yaml, against old.yaml\n")
    assert "| `chunks` | `timeline` (default) | `events` |" in result.stdout
    rows = [line for line in result.stdout.splitlines() if line.startswith("| records per request")]
    assert "| 1.00 | 65.00 | **+64.00 (+64.00 … +64.00)**, +6400% | 0 (0 … 0) |" in rows[-1]
    assert len(rows) == len(KINDS)


def test_the_command_prints_json(write: Write) -> None:
    old = write("old", "")
    found = json.loads(called("--config", old, "--against", old, "--json").stdout)
    assert found["difference"]["parameters"] == {}
    figures = {(figure["kind"], figure["name"]): figure for figure in found["figures"]}
    records = figures[STREAM.name, bench.RECORDS]
    assert (records["difference"]["value"], records["seen"], records["unit"]) == (0, False, "")
    assert {kind for kind, _ in figures} == {kind.name for kind in KINDS}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--config", "old.yaml"], "--against"),
        (["--against", "old.yaml"], "--config"),
        (["--config", "none.yaml", "--against", "old.yaml"], "none.yaml: no such file"),
        (["--config", "old.yaml", "--against", "old.yaml", "--rounds", "0"], "--rounds"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(
    write: Write, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.chdir(write("old", "").parent)
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


def test_the_recipe_of_the_documentation_writes_the_summary(write: Write, tmp_path: Path) -> None:
    block = RECIPE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    (step,) = yaml.safe_load(block)
    script = tmp_path / "bin" / "inference-logging"
    script.parent.mkdir()
    main = "from inference_logging.cli.main import main; main()"
    bench_ = "from inference_logging.cli.bench import command; command()"
    python = f"exec {sys.executable} -c"
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = bench ]; then shift; {python} "{bench_}" "$@" --seconds 0.01 --rounds 1; fi\n'
        f'{python} "{main}" "$@"\n'
    )
    script.chmod(0o755)
    checkout, summary = tmp_path / "checkout", tmp_path / "summary.md"
    environment = {
        **os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}", "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    prepare = """
        git init -q --initial-branch=main origin && cd origin && git config user.name t && git config user.email t@t
        printf 'version: 1\\n' > logging.yaml && git add . && git commit -qm one
        cd .. && git clone -q origin checkout
        printf 'version: 1\\nchunks: events\\n' > checkout/logging.yaml
    """
    subprocess.run(["bash", "-ec", prepare], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["bash", "-ec", step["run"]], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "chunks: timeline (default) → events" in done.stdout
    assert summary.read_text(encoding="utf-8").startswith("## The cost of logging.yaml, against old.yaml")
