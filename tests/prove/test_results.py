"""Results are kept with what they were found on, and the README quotes these and no others."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests import results
from loadtests.engine.bench_triton import ADDED, COSTS, NEEDED
from loadtests.results_rows import ROWS, TABLES, Table
from loadtests.results_text import interval_text
from loadtests.turns.bench_turns import ROUTES
from loadtests.turns.bench_turns_arms import COMPARED, OURS
from loadtests.turns.bench_turns_rows import rows_of

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures.md"
QUICK = Path(__file__).parent / "quick_results"
"""What quick runs found: its form is that of a real one; its figures mean nothing."""
PARTS = ["bench", "inside", "turns", "peers", "growth", "parsl", "triton", "vllm"]
PARSL = {
    "command": "make bench-parsl",
    "figures": {
        name: {"value": value, "low": value - 0.01, "high": value + 0.01}
        for name, value in (("ours ÷ off", 1.02), ("control ÷ off", 1.0), ("default ÷ off", 1.34))
    },
    "goals": [{"goal": "ours ÷ default is below 1", "reached": False, "because": "1.0100 (1.0000…1.0200)"}],
}
SENTENCES = ("From 1 to 16 processes, it does not grow.", "From 1 to 64 threads, it falls.")
GROWTH = {"command": "make bench-growth", "growth": [{"sentence": sentence} for sentence in SENTENCES]}
EMPTY = f"before\n\n{results.BEGIN}\n\nold\n\n{results.END}\n\nafter\n"


def of_servers(table: Table, left_out: str = "") -> dict[str, Any]:
    """Return what a benchmark of real servers finds, without one way of logging."""
    names: dict[str, list[str]] = {}
    for section, figure, _ in table.columns:
        names.setdefault(section, []).extend(f"{figure}: {mode} ÷ none" for mode, _ in table.rows if mode != left_out)
    if table.part == "triton":
        names["Triton: HTTP"] += [NEEDED, ADDED]
        names["Triton: one call inside of execute"] = list(COSTS)
    rounds: dict[str, Any] = {"unit": "×", "goal": None, "median": 1.5, "low": 0.5, "high": 3.0}
    sections = names.items()
    return {
        "command": f"make bench-{table.part}",
        "sections": [
            {"title": f"{title}: …", "figures": [{"name": one, **rounds} for one in found]} for title, found in sections
        ],
    }


def of_peers() -> dict[str, Any]:
    """Return what `inference-logging bench` finds, as far as pages say it: a missing peer, and each verdict."""
    titles = {"empty": "empty call (control)", "loguru": "loguru", "picologging": "picologging"}
    missing = {"picologging": "picologging has no wheel for Python 3.11"}
    peers = [
        {"name": name, "title": title, "writes": name != "empty", "missing": missing.get(name)}
        for name, title in titles.items()
    ]
    values = {"p50_ns": 2e4, "p999_ns": 3e6, "records_per_s": 2.9e4, "interpreter_cpu_ns": 2.2e4, "peak_bytes": 4e6}
    figures: dict[str, Any] = {
        name: {"value": value, "low": value, "high": value}
        for name, value in {**values, "arrived_ratio": 1.0, "kept_ratio": 0.5}.items()
    }
    cells = [
        {"peer": name, "loop": loop, "threads": threads, "record_bytes": 256, "figures": figures}
        for name in titles
        for loop in ("closed", "open")
        for threads in (1, 64)
    ]
    interval = {"low": 2.9, "high": 3.4}
    goals = [
        {"name": "all arrive", "goal": "1", "value": 1.0, "low": 1.0, "high": 1.0, "verdict": "reached"},
        {"name": "64 threads", "goal": "≤ 2", "value": 3.1, **interval, "verdict": "not reached"},
        {"name": "fapilog's sink", "goal": "≤ 1/200", "value": None, "verdict": "not measured: fapilog is missing"},
    ]
    return {"command": "inference-logging bench", "quick": False, "peers": peers, "cells": cells, "goals": goals}


def turned() -> dict[str, Any]:
    """Return what the turns of a server find: both of the thinnest wrapper cost 1 µs, each further arm 1 µs more."""
    noise = random.Random(1)
    blocks = [
        tuple(round(64_000 * (100 + max(at - 1, at > 0) + noise.gauss(0, 0.1))) for at in range(len(COMPARED)))
        for _ in range(40)
    ]
    rows = [row for case in ROUTES.values() for row in rows_of(case, [blocks, blocks])]
    return {"command": "make bench-turns", "machine": {"load average": "3.00 2.00 1.00"}, "quick": False, "rows": rows}


def found(name: str) -> dict[str, Any]:
    """Return the result of a command, as if it were not that of a quick run."""
    if name == "peers":
        return of_peers()
    if name == "growth":
        return GROWTH
    if name == "turns":
        return turned()
    if name == "parsl":
        return PARSL
    if name in (table.part for table in TABLES):
        return of_servers(next(table for table in TABLES if table.part == name))
    return {**json.loads((QUICK / f"{name}.json").read_text(encoding="utf-8")), "quick": False, "command": "make"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which all commands have kept what they found."""
    place = tmp_path_factory.mktemp("kept")
    for name in PARTS:
        results.keep(name, found(name), place)
    return place


@pytest.fixture
def directory(kept: Path, tmp_path: Path) -> Path:
    """Return a copy of that directory."""
    return shutil.copytree(kept, tmp_path / "results")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", FIGURES, ROOT / "docs" / "comparison.md"], ids=lambda page: page.name
)
def test_a_page_quotes_the_newest_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert results.updated(text, results.newest()) == text, f"run `python -m loadtests.results --update {page.name}`"


def test_the_page_of_figures_has_no_table_beside_the_generated_one() -> None:
    text = FIGURES.read_text(encoding="utf-8")
    assert text.count(results.BEGIN) == text.count(results.END) == 1
    outside = text.partition(results.BEGIN)[0] + text.partition(results.END)[2]
    assert not re.search(r"^\|", outside, re.MULTILINE), "a table that no command wrote"


def test_the_readme_names_how_many_goals_are_not_reached(kept: Path) -> None:
    begin, end = results.BEGIN_COST, results.END_COST
    text = results.updated(f"{begin}{end}", results.newest(kept))
    assert re.search(r"\nWe meet \d+ of our \d+ performance targets; \[these\]\(docs/figures\.md\) we don't, or ", text)
    assert "2 cores" not in text or "beside other work" in text
    assert re.search(r"^\| thinnest wrapper \| [\d.]+ µs \([\d.]+ … [\d.]+\) \|", text, re.MULTILINE)
    assert re.search(r"^\| structlog \| [\d.]+ µs \([\d. …]+\): [\d.]+ × \([\d. …]+\) \|", text, re.MULTILINE)
    assert "{" not in text


def test_each_part_is_kept_with_day_machine_command_and_versions(directory: Path) -> None:
    (path,) = directory.glob("*.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-[a-z0-9-]+\.json", path.name)
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    assert list(parts) == PARTS
    for part in parts.values():
        assert part["made"][:10] == path.name[:10]
        assert {"cpu", "cores", "python"} <= set(part["machine"])
        assert part["versions"]["uvicorn"]
        assert part["command"]
    assert parts["peers"]["command"] == "inference-logging bench"
    assert parts["turns"]["result"] == found("turns")


@pytest.mark.parametrize("load", ["999.00 2.00 1.00", "0.00 0.00 0.00"])
def test_a_page_says_what_was_measured_beside_other_work(load: str, tmp_path: Path) -> None:
    results.keep("turns", {**found("turns"), "machine": {"load average": load}}, tmp_path)
    (measured,) = re.findall(r"^- `turns` on .*$", results.updated(EMPTY, results.newest(tmp_path)), re.MULTILINE)
    assert ("beside other work" in measured) == load.startswith("999")


def test_a_part_that_is_measured_again_takes_the_old_ones_place(directory: Path) -> None:
    results.keep("turns", {**found("turns"), "seen": 7}, directory)
    assert results.newest(directory)["turns"].result["seen"] == 7
    assert len(list(directory.glob("*.json"))) == 1


def test_of_a_part_in_two_files_the_newest_is_quoted(directory: Path) -> None:
    (path,) = directory.glob("*.json")
    old = json.loads(path.read_text(encoding="utf-8"))
    for part in old["parts"].values():
        part["made"] = "2020-01-01T00:00:00+00:00"
    old["parts"] = {name: old["parts"][name] for name in ("bench", "turns")}
    old["parts"]["turns"]["result"]["seen"] = 99
    (directory / "2020-01-01-other.json").write_text(json.dumps(old), encoding="utf-8")
    assert "seen" not in results.newest(directory)["turns"].result
    path.unlink()
    assert results.newest(directory)["turns"].result["seen"] == 99
    assert results.newest(directory)["turns"].file == "2020-01-01-other"


def test_a_quick_run_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quick=true"):
        results.keep("bench", {**found("bench"), "quick": True}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_schema_is_named(tmp_path: Path) -> None:
    (tmp_path / "2020-01-01-other.json").write_text('{"schema": 9, "parts": {}}')
    with pytest.raises(ValueError, match=r"2020-01-01-other\.json: schema=9"):
        results.newest(tmp_path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_every_row_finds_its_figures(row: Any, directory: Path) -> None:
    text = results.updated(EMPTY, results.newest(directory))
    written = next(line for line in text.splitlines() if line.startswith(f"| {row.what} |"))
    assert re.search(r"\d", written.split("|")[2])
    assert "{" not in written


def test_the_figures_are_those_of_the_file_and_the_update_changes_nothing_else(directory: Path) -> None:
    text = results.updated(EMPTY, results.newest(directory))
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    assert "\nold\n" not in text
    assert results.updated(text, results.newest(directory)) == text
    starts = found("bench")["sections"]["sidecar"]["figures"][0]
    assert interval_text({**starts, "value": starts["median"]}, starts["unit"]) in text
    assert f"| {OURS} | 8.0 µs (8.0 … 8.0) |" in text


def test_ways_of_logging_growth_and_goals_stand_there_too(directory: Path) -> None:
    text = results.updated(EMPTY, results.newest(directory))
    assert re.search(r"^\| loguru \| [0-9.]+ µs \| [0-9.]+ m?s \| [0-9.]+ k \|", text, re.MULTILINE)
    assert re.search(r"^\| picologging \| not measured: picologging has no wheel", text, re.MULTILINE)
    for sentence in SENTENCES:
        assert f"- {sentence}\n" in text
    goals = text.partition(" goals are reached. Missed:")[2]
    missed, _, unknown = goals.partition("Not measured:")
    assert "- 64 threads: 3.1, goal ≤ 2\n" in missed
    assert "- in process, FastAPI: 3.09 µs (1.31 … 4.45), goal ≤ 2 µs, but within noise of the goal\n" in missed
    assert "- ours ÷ default is below 1: 1.0100 (1.0000…1.0200)\n" in missed
    assert "- fapilog's sink, goal ≤ 1/200: fapilog is missing\n" in unknown
    assert re.search(
        r"^- uvicorn, GET of a few bytes, ours: [0-9.]+ × .*, goal ≤ 1.4 × the thinnest wrapper", missed, re.MULTILINE
    )


def test_a_section_that_was_not_measured_has_no_row_and_an_unknown_figure_is_an_error(tmp_path: Path) -> None:
    bench = found("bench")
    del bench["sections"]["audit"]
    results.keep("bench", bench, tmp_path)
    assert "audit lane" not in results.updated(EMPTY, results.newest(tmp_path))
    bench["sections"]["verify"]["figures"] = []
    results.keep("bench", bench, tmp_path)
    with pytest.raises(LookupError, match="verify: gaps, footers, checksums}: 0 figures of this name"):
        results.updated(EMPTY, results.newest(tmp_path))


def test_a_command_may_bring_rows_of_its_own(tmp_path: Path) -> None:
    row = {"what": "a slice of ab", "ours": "1.5 ms", "beside": "off: 1.5 ms"}
    results.keep("ab", {"command": "make bench-ab", "rows": [row]}, tmp_path)
    assert "| a slice of ab | 1.5 ms | off: 1.5 ms |" in results.updated(EMPTY, results.newest(tmp_path))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.part)
def test_real_servers_have_a_table_with_a_row_for_each_way_that_was_measured(table: Table, directory: Path) -> None:
    results.keep(table.part, of_servers(table, left_out=table.rows[2][0]), directory)
    text = results.updated(EMPTY, results.newest(directory))
    rows = [line.split(" | ") for line in text.partition(f"{table.about}:")[2].splitlines()[4 : 3 + len(table.rows)]]
    assert [row[0].removeprefix("| ") for row in rows] == [
        what for place, (_, what) in enumerate(table.rows) if place != 2
    ]
    assert {cell.removesuffix(" |") for cell in rows[1][1:]} == {"1.5 × (0.5 … 3)"}


def test_a_readme_without_marks_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="marks are missing"):
        results.updated("no marks", results.newest(directory))


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("AMD EPYC 7B13 64-Core Processor", "amd-epyc-7b13"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon"),
        ("AMD EPYC", "amd-epyc"),
        ("aarch64", "aarch64"),
        ("()", "machine"),
    ],
)
def test_a_processors_name_is_short_in_the_files_name(cpu: str, name: str) -> None:
    assert results.slug(cpu) == name


def command(*options: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "loadtests.results", *map(str, options)]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_keeps_and_updates(tmp_path: Path) -> None:
    file, readme, kept = tmp_path / "turns.json", tmp_path / "README.md", tmp_path / "kept"
    file.write_text(json.dumps(found("turns")), encoding="utf-8")
    readme.write_text(EMPTY, encoding="utf-8")
    done = command("--keep", "turns", file, "--directory", kept, "--update", readme)
    assert (done.returncode, done.stderr) == (0, "")
    assert readme.read_text(encoding="utf-8") == results.updated(EMPTY, results.newest(kept))


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    done = command("--keep", "bench", QUICK / "bench.json", "--directory", tmp_path / "kept")
    assert (done.returncode, done.stderr) == (
        1,
        "results: bench: quick=true: the figures of a quick run mean nothing, and are not kept\n",
    )
    done = command("--directory", tmp_path / "kept", "--update", tmp_path / "README.md")
    assert done.returncode == 1
    assert "no results are kept there" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("cost.bench", "--keep", "--quick"), "not allowed with argument"),
        (("cost.bench", "audit", "--keep"), "--keep with audit: only the result of all sections is kept"),
        (("turns.bench_turns", "--keep", "--quick"), "not allowed with argument"),
    ],
)
def test_a_benchmark_keeps_neither_a_quick_run_nor_a_part_of_one(options: tuple[str, ...], reason: str) -> None:
    program = [sys.executable, "-m", f"loadtests.{options[0]}", *options[1:]]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
