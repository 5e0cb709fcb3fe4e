"""`inference-logging config diff`: what differs between two files, what that implies, and with which exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from inference_logging.record.config.difference import _BY_CTL
from tests.command_line import run

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a configuration file and return its path."""

    def file(name: str, content: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"version: 1\n{content}")
        return str(path)

    return file


def test_equal_files_have_the_exit_code_0_also_where_one_says_the_default(write: Write) -> None:
    default = Config.model_fields["sample_ratio"].default
    old, new = write("old", ""), write("new", f"sample_ratio: {default}\nadvanced: {{flush_records: 100}}\n")
    result = run("config", "diff", old, new)
    assert (result.code, result.out, result.err) == (0, f"{old} → {new}: no parameter differs\n", "")
    found = json.loads(run("config", "diff", old, new, "--json").out)
    assert (found["parameters"], found["implications"], found["shares_queue_directory"]) == ({}, [], True)


def test_each_parameter_has_its_values_its_meaning_and_how_it_is_tried(write: Write) -> None:
    old, new = write("old", "level: DEBUG\n"), write("new", "slow_s: 2\nlevel: INFO\nadvanced: {flush_records: 7}\n")
    result = run("config", "diff", old, new)
    assert result.code == 1
    assert result.out.startswith(f"{old} → {new}: 3 parameters differ\n")
    # The order is that of the reference.
    assert re.findall(r"^(\w+): (.*)$", result.out, flags=re.MULTILINE) == [
        ("level", "DEBUG → INFO"),
        ("slow_s", "0.0 (default) → 2.0 (s)"),
        ("flush_records", "100 (default) → 7 (records)"),
    ]
    words = " ".join(result.out.split())
    meanings = {parameter.name: parameter.meaning for parameter in Config.describe()}
    assert all(" ".join(meanings[name].split()) in words for name in ("level", "slow_s", "flush_records"))
    assert result.out.count("without a restart") == 1
    assert "`inference-logging ctl level` tries it" in words
    assert "takes effect when servers, and a listener beside them, start again" in words


def test_a_value_that_returns_to_the_default_says_so(write: Write) -> None:
    result = run("config", "diff", write("old", "sample_ratio: 0.5\n"), write("new", ""))
    assert (result.code, "sample_ratio: 0.5 → 1.0 (default)" in result.out) == (1, True)


@pytest.mark.parametrize(
    ("old", "new", "sentence", "shares"),
    [
        ("", "slow_s: 1\n", "Processes with either file share a queue directory, and with it one listener.", True),
        ("", "redact_patterns: [email]\n", "each with a listener, since `redact_patterns` would differ", False),
        ("queue_directory: /q\n", "queue_directory: /q\ndirectory: /l\n", "and `directory` would differ", False),
        ("queue_directory: /q\n", "queue_directory: /r\n", "Queues move from /q to /r", False),
    ],
)
def test_it_says_whether_processes_share_a_queue_directory(
    write: Write, old: str, new: str, sentence: str, shares: bool
) -> None:
    files = write("old", old), write("new", new)
    assert sentence in " ".join(run("config", "diff", *files).out.split())
    found = json.loads(run("config", "diff", *files, "--json").out)
    assert found["shares_queue_directory"] is shares
    assert sentence in found["implications"][1]


def test_the_environment_and_the_place_of_the_files_are_no_difference(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_SLOW_S", "7")
    assert run("config", "diff", write("old", "slow_s: 1\n"), write("new", "slow_s: 1\n")).code == 0


def test_the_table_has_a_row_for_each_parameter(write: Write) -> None:
    result = run(
        "config", "diff", write("old", ""), write("new", "redact_patterns: [key]\nservice_name: a\n"), "--markdown"
    )
    rows = [line for line in result.out.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| `service_name`", "`inference` (default)", "`a`"],
        ["| `redact_patterns`", "`[]` (default)", '`["key"]`'],
    ]
    # A bar that ends a cell too early would be one too many.
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_exit_code_is_the_same_in_every_form(write: Write, form: str) -> None:
    old, new = write("old", ""), write("new", "slow_s: 1\n")
    assert [run("config", "diff", *files, form).code for files in ((old, new), (old, old))] == [1, 0]


def test_a_wrong_or_missing_file_has_the_exit_code_2_and_is_named(write: Write, tmp_path: Path) -> None:
    old, wrong = write("old", ""), write("wrong", "slow_s: -1\n")
    result = run("config", "diff", old, wrong)
    assert (result.code, result.out) == (2, "")
    assert re.search(rf"{re.escape(wrong)}:\d+: slow_s=-1 \(file\)", result.err)
    result = run("config", "diff", old, str(tmp_path / "none.yaml"))
    assert (result.code, result.out) == (2, "")
    assert f"{tmp_path / 'none.yaml'}: no such file" in result.err
    result = run("config", "diff", old, old, "--json", "--markdown")
    assert (result.code, "exclude each other" in result.err) == (2, True)


@pytest.mark.parametrize("parameter", _BY_CTL)
def test_what_is_said_to_be_tried_by_ctl_has_a_command_there(parameter: str) -> None:
    assert parameter in Config.model_fields
    assert run("ctl", _BY_CTL[parameter], "--help").code == 0
