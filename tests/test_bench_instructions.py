"""callgrind's counts are read as it writes them, compared with their bounds, and each row does its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.instructions import bench_instructions, callgrind
from loadtests.instructions.bench_instructions import FIGURES, Toolchain
from loadtests.instructions.callgrind import Counts

JUDGED = [figure for figure in FIGURES if figure.is_judged]
HERE = Toolchain("x86_64", "CPython 3.11.2, built with PGO", "rustc 1.95.0")
SAMPLE = """# callgrind format
version: 1
part: 2
thread: 3

desc: Trigger: Client Request: get/0
positions: instr
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw

ob=/lib/libc.so.6
fn=memcpy
0x1000 10 5 5 1 2 3

ob=/package/inference_logging/_native.abi3.so
fn=begin
0x1038 10
0x103c 10 0 0 4
cob=/lib/libc.so.6
cfn=memcpy
calls=10 0x1000
0x1040 1000 500 500 100
0x1044 4 0 0 1
fn=finish
0x2000 20 20 0 0 10

totals: 54 25 5 6 12 3
"""


def sample() -> Counts:
    counts = Counts()
    counts.add(callgrind.read(SAMPLE.splitlines(keepends=True)).counts, 1 / 10)  # of ten requests
    return counts


def row(instructions: float, native: float = 100) -> dict[str, dict[str, float]]:
    return {"get": {"instructions": instructions, "native_instructions": native}}


def test_a_file_reports_its_mark_and_its_thread() -> None:
    dump = callgrind.read(SAMPLE.splitlines(keepends=True))
    assert (dump.name, dump.thread) == ("get/0", 3)


def test_instructions_and_misses_are_counted_where_they_are_and_not_in_callers() -> None:
    counts = sample()
    assert counts.total().cost.instructions == pytest.approx(5.4)
    assert counts.total().cost.misses == pytest.approx(2.1)
    assert counts.total("_native").cost.instructions == pytest.approx(4.4)


def test_a_code_line_counts_where_it_runs_at_least_every_other_time() -> None:
    native = sample().total("_native")
    assert native.lines == {0x1038 >> 6, 0x2000 >> 6}  # 0x1044, on a line of its own, ran four times of ten
    assert native.pages == {1, 2}


def test_each_function_has_its_own_counts() -> None:
    functions = sample().functions("_native")
    assert set(functions) == {"begin", "finish"}
    assert functions["finish"].cost.instructions == pytest.approx(2)
    assert functions["begin"].lines == {0x1038 >> 6}


def test_what_runs_without_logging_as_well_is_taken_off() -> None:
    counts = sample()
    counts.add(sample(), -1)
    assert counts.total().cost.instructions == pytest.approx(0)
    assert not counts.total().lines


@pytest.mark.parametrize(("instructions", "sentences"), [(1019, 0), (1021, 1), (500, 0)])
def test_two_percent_above_the_bound_is_too_much(instructions: float, sentences: int) -> None:
    assert len(list(bench_instructions.exceeded(row(instructions), row(1000), JUDGED))) == sentences


def test_the_native_modules_own_instructions_have_a_bound_of_their_own() -> None:
    (sentence,) = bench_instructions.exceeded(row(1000, 103), row(1000, 100), JUDGED)
    assert sentence == "GET, bare ASGI, per request: 103.0 native instructions are +3.0% above the bound of 100"


def test_all_instructions_of_a_request_of_fastapi_may_differ_by_more() -> None:
    bound = {"fastapi": row(1000)["get"]}
    assert not list(bench_instructions.exceeded({"fastapi": row(1059, 101)["get"]}, bound, JUDGED))
    assert len(list(bench_instructions.exceeded({"fastapi": row(1061, 103)["get"]}, bound, JUDGED))) == 2


def test_a_row_without_a_bound_fails() -> None:
    (first, _) = bench_instructions.exceeded(row(1000), {}, JUDGED)
    assert "--update" in first


def test_another_interpreter_leaves_only_native_instructions_to_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    other = Toolchain("x86_64", "CPython 3.13.1, built without PGO", "rustc 1.95.0")
    assert bench_instructions.judged_figures(HERE, HERE) == JUDGED
    assert capsys.readouterr().out == ""
    assert [figure.key for figure in bench_instructions.judged_figures(other, HERE)] == ["native_instructions"]
    assert "only native instructions are judged" in capsys.readouterr().out
    assert bench_instructions.judged_figures(Toolchain("aarch64", "", ""), HERE) == []


def test_the_noted_bounds_are_those_of_all_rows(tmp_path: Path) -> None:
    noted, bounds = bench_instructions.read_bounds()
    assert list(bounds) == list(bench_instructions.ROWS)
    assert {figure.key for figure in JUDGED} <= set.intersection(*(set(row) for row in bounds.values()))
    assert {name for names in bench_instructions.TOGETHER for name in names} == set(bounds)
    bench_instructions.write_bounds(noted, bounds, tmp_path / "bounds.json")
    assert bench_instructions.read_bounds(tmp_path / "bounds.json") == (noted, bounds)


def test_the_interpreter_says_how_it_was_built() -> None:
    found = bench_instructions.find_interpreter()
    assert found.description.startswith("CPython {}.{}.".format(*sys.version_info))
    assert "PGO" in found.description


@pytest.mark.servers
def test_each_row_does_its_work_and_dumps_each_of_its_parts(tmp_path: Path) -> None:
    marks = tmp_path / "marks.so"
    source = f"""#include <stdio.h>
    void start(void) {{}} void stop(void) {{}} void zero(void) {{}}
    void dump(const char *name) {{ FILE *to = fopen("{tmp_path}/dumped", "a"); fprintf(to, "%s ", name); fclose(to); }}
    """
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", marks, "-"], input=source, text=True, check=True)
    rows: dict[str, Any] = {}
    for number, names in enumerate(bench_instructions.TOGETHER):
        place = tmp_path / str(number)
        place.mkdir()
        ended = subprocess.run(
            [sys.executable, bench_instructions.HERE / "instruction_rows.py", "count", marks, *names],
            env={**os.environ, "PYTHONPATH": str(bench_instructions.ROOT), **bench_instructions.settings(place)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        rows |= json.loads(ended.stdout.splitlines()[-1])
    assert set(rows) == set(bench_instructions.ROWS)
    parts = [f"{name}/{position}" for name, row in rows.items() for position, _ in enumerate(row["weights"])]
    assert (tmp_path / "dumped").read_text(encoding="utf-8").split() == parts
    assert rows["chunk"]["gc_objects"] == 0
