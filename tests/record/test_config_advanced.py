"""Configuration in detail: the advanced group, the difference of two files, sinks, and what a file may not be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Config, ConfigError
from inference_logging.record.config import FileConfig
from inference_logging.record.config.difference import _BY_CTL
from inference_logging.record.config.fields import GROUP
from tests.kit.command_line import run

MOST_VISIBLE = 65
ADVANCED = [parameter for parameter in Config.describe() if parameter.advanced]


def write(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump({"version": 1, **content}))
    return path


def problems(kind: type[Config] = Config, **keywords: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        kind(**keywords)
    return caught.value.problems


def test_few_parameters_are_visible_and_they_are_described_first() -> None:
    described = [parameter.advanced for parameter in Config.describe()]
    assert described.count(False) <= MOST_VISIBLE
    assert described == sorted(described)
    assert set(Config.model_fields) == {parameter.name for parameter in Config.describe()}


def test_no_parameter_is_called_like_the_group() -> None:
    assert GROUP not in Config.model_fields


def test_a_keyword_may_stand_in_the_group_or_outside_of_it() -> None:
    inside = Config(advanced={"flush_records": 7, "flush_bytes": "64KiB"}, level="ERROR")
    assert inside == Config(flush_records=7, flush_bytes="64KiB", level="ERROR")
    assert (inside.flush_records, inside.flush_bytes, inside.level) == (7, 65536, "ERROR")
    assert Config(advanced={}) == Config()


def test_the_file_may_have_every_advanced_parameter_in_the_group(tmp_path: Path) -> None:
    written = FileConfig().model_dump(mode="json", include={parameter.name for parameter in ADVANCED})
    file = write(tmp_path / "c.yaml", advanced=written)
    assert FileConfig(config_file=file) == FileConfig().model_copy(update={"config_file": file})


def test_keyword_goes_before_environment_before_file_wherever_each_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "c.yaml", advanced={"flush_records": 1, "flush_bytes": 4096, "sample_precision": 5})
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_RECORDS", "2")
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_BYTES", "8192")
    given: dict[str, Any] = {"config_file": file, "advanced": {"flush_records": 3}}
    config, origins = Config(**given), Config.origins(**given)
    assert (config.flush_records, config.flush_bytes, config.sample_precision) == (3, 8192, 5)
    names = ("flush_records", "flush_bytes", "sample_precision", "stuck_after_s")
    expected = ["keyword", "environment INFERENCE_LOGGING_FLUSH_BYTES", f"file {file}", "default"]
    assert [origins[name] for name in names] == expected
    assert Config(config_file=file, flush_records=4).flush_records == 4


def test_yaml_off_means_off_in_the_group_too(tmp_path: Path) -> None:
    problem = problems(config_file=write(tmp_path / "c.yaml", advanced={"trace_source": False}))
    assert problem == ('trace_source=False (file): must be one of "auto", "header"',)


WRONG: list[tuple[Any, str]] = [
    (7, "advanced=7 ({origin}): must be a mapping of advanced parameters to values"),
    (None, "advanced=None ({origin}): must be a mapping of advanced parameters to values"),
    (
        {"flush_record": 7},
        "advanced.flush_record=7 ({origin}): unknown parameter, the nearest known is advanced.flush_records",
    ),
    (
        {"queue_byte": 7},
        "advanced.queue_byte=7 ({origin}): unknown parameter, the nearest known is queue_bytes, outside of the group",
    ),
    ({"level": "INFO"}, "advanced.level='INFO' ({origin}): must stand outside of the group, as level"),
    ({"stuck_after_s": 2}, "advanced.stuck_after_s=2 ({origin}): must be given once, but stuck_after_s=1 is there too"),
    ({"flush_records": 0}, "flush_records=0 ({origin}): must be a whole number from 1 to 1000000 (records)"),
]


@pytest.mark.parametrize(("group", "sentence"), WRONG, ids=[str(group) for group, _ in WRONG])
def test_what_is_wrong_in_the_group_is_reported_by_parameter_and_value(
    group: Any, sentence: str, tmp_path: Path
) -> None:
    assert problems(stuck_after_s=1, advanced=group) == (sentence.format(origin="keyword"),)
    file = write(tmp_path / "c.yaml", stuck_after_s=1, advanced=group)
    assert problems(FileConfig, config_file=file) == (sentence.format(origin="file"),)


def test_all_problems_of_both_groups_are_reported_in_one_message(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", advanced={"level": "INFO", "flush_bytes": 0}, sink="kafka")
    found = problems(config_file=file, advanced={"level": "INFO", "flush_record": 1}, advancd=1)
    assert sorted(problem.split(": must")[0] for problem in found) == [
        "advancd (keyword): unknown parameter, the nearest known is advanced",
        "advanced.flush_record=1 (keyword): unknown parameter, the nearest known is advanced.flush_records",
        "advanced.level='INFO' (file)",
        "advanced.level='INFO' (keyword)",
        "flush_bytes=0 (file)",
        "sink='kafka' (file)",
    ]


def test_a_variable_cannot_hold_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_ADVANCED", '{"flush_records": 7}')
    (problem,) = problems(advanced={"flush_bytes": 4096})
    assert problem.startswith(
        "advanced='{\"flush_records\": 7}' (environment INFERENCE_LOGGING_ADVANCED): must not be set; each parameter"
    )


def test_a_file_made_by_hand_and_one_with_the_group_share_a_queue_directory(tmp_path: Path) -> None:
    by_hand, grouped = write(tmp_path / "a.yaml", redact_replacement="x"), tmp_path / "b.yaml"
    write(grouped, advanced={"redact_replacement": "x"})
    first, second = FileConfig(config_file=by_hand), FileConfig(config_file=grouped)
    assert first.resolved_queue_directory == second.resolved_queue_directory


Write = Callable[[str, str], str]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write a configuration file and return its path."""

    def file(name: str, content: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"version: 1\n{content}")
        return str(path)

    return file


def test_equal_files_have_the_exit_code_0_also_where_one_says_the_default(written: Write) -> None:
    default = Config.model_fields["sample_ratio"].default
    old, new = written("old", ""), written("new", f"sample_ratio: {default}\nadvanced: {{flush_records: 100}}\n")
    result = run("config", "diff", old, new)
    assert (result.code, result.out, result.err) == (0, f"{old} → {new}: no parameter differs\n", "")
    found = json.loads(run("config", "diff", old, new, "--json").out)
    assert (found["parameters"], found["implications"], found["shares_queue_directory"]) == ({}, [], True)


def test_each_parameter_has_its_values_its_meaning_and_how_it_is_tried(written: Write) -> None:
    old, new = (
        written("old", "level: DEBUG\n"),
        written("new", "slow_s: 2\nlevel: INFO\nadvanced: {flush_records: 7}\n"),
    )
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


def test_a_value_that_returns_to_the_default_says_so(written: Write) -> None:
    result = run("config", "diff", written("old", "sample_ratio: 0.5\n"), written("new", ""))
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
    written: Write, old: str, new: str, sentence: str, shares: bool
) -> None:
    files = written("old", old), written("new", new)
    assert sentence in " ".join(run("config", "diff", *files).out.split())
    found = json.loads(run("config", "diff", *files, "--json").out)
    assert found["shares_queue_directory"] is shares
    assert sentence in found["implications"][1]


def test_the_environment_and_the_place_of_the_files_are_no_difference(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_SLOW_S", "7")
    assert run("config", "diff", written("old", "slow_s: 1\n"), written("new", "slow_s: 1\n")).code == 0


def test_the_table_has_a_row_for_each_parameter(written: Write) -> None:
    result = run(
        "config", "diff", written("old", ""), written("new", "redact_patterns: [key]\nservice_name: a\n"), "--markdown"
    )
    rows = [line for line in result.out.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| `service_name`", "`inference` (default)", "`a`"],
        ["| `redact_patterns`", "`[]` (default)", '`["key"]`'],
    ]
    # A bar that ends a cell too early would be one too many.
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_exit_code_is_the_same_in_every_form(written: Write, form: str) -> None:
    old, new = written("old", ""), written("new", "slow_s: 1\n")
    assert [run("config", "diff", *files, form).code for files in ((old, new), (old, old))] == [1, 0]


def test_a_wrong_or_missing_file_has_the_exit_code_2_and_is_named(written: Write, tmp_path: Path) -> None:
    old, wrong = written("old", ""), written("wrong", "slow_s: -1\n")
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


def test_additional_sinks_are_separated_by_commas_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_ADDITIONAL_SINKS", "stdout, udp://127.0.0.1:9000")
    assert Config().additional_sinks == ("stdout", "udp://127.0.0.1:9000")


@pytest.mark.parametrize(
    "sinks", [["stdout", "stdout"], [f"udp://127.0.0.1:{port}" for port in range(1, 8)]], ids=["twice", "seven"]
)
def test_an_additional_sink_named_twice_or_one_too_many_is_refused(sinks: list[str]) -> None:
    with pytest.raises(ConfigError, match="additional_sinks"):
        Config(additional_sinks=sinks)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"fallback": "{here}/logs"}, "fallback"),
        ({"additional_sinks": ["file://{here}/logs/"]}, "additional_sinks"),
        ({"sink": "stdout", "additional_sinks": ["stdout"]}, "additional_sinks"),
        ({"fallback": "{here}/b", "additional_sinks": ["file://{here}/b"]}, "additional_sinks"),
    ],
)
def test_two_sinks_that_would_write_to_one_place_are_refused(
    values: dict[str, Any], named: str, tmp_path: Path
) -> None:
    def here(value: Any) -> Any:
        return [here(one) for one in value] if isinstance(value, list) else value.format(here=tmp_path)

    with pytest.raises(ConfigError, match=f"{named}.*writes to the same place as"):
        Config(directory=tmp_path / "logs", **{name: here(value) for name, value in values.items()})


TENFOLD = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f"version: 1\na0: &a0 [x]\n{TENFOLD}", "line 8: its values have more than 1,048,576 letters"),
        ("version: 1\nlevel: &l " + "x" * 2000 + f"\na: [{', '.join(['*l'] * 600)}]\n", "line 3: its values have"),
        ("version: 1\na: &a [*a]\n", "line 2: it contains itself"),
        ("version: 1\na: " + "[" * 600 + "]" * 600, "it is nested too deeply"),
        ("version: 1\na: " + "{a: " * 600 + "}" * 600, "it is nested too deeply"),
        ("version: 1\nlevel: INFO\nqueue_bytes: 1 MiB\nlevel: WARN\n", "line 4: 'level' is given twice"),
        ("version: 1\nadvanced:\n  flush_records: 1\n  flush_records: 2\n", "line 4: 'flush_records' is given twice"),
        ("# " + "x" * (1 << 20), "it has more than 1,048,576 bytes"),
        ("version: 1\nqueue_bytes: " + "9" * 5000, "can't be read: Exceeds the limit"),
        ("version: 1\nlevel: 2026-99-99\n", "can't be read: month must be in"),
    ],
    ids=["aliases", "long alias", "itself", "lists", "mappings", "twice", "twice within", "long", "digits", "date"],
)
def test_a_file_that_is_refused_says_why_in_one_line(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        Config(config_file=path)
    (sentence,) = refused.value.args[0].splitlines()[1:]
    assert why in sentence
    assert len(sentence) < 400
    assert run("config", "check", str(path)).code == 1


def test_aliases_within_the_bounds_mean_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text("version: 1\nqueue_bytes: &size 2 MiB\nrotate_bytes: *size\nskip_paths: [/a, /a]\n")
    config = Config(config_file=path)
    assert (config.queue_bytes, config.rotate_bytes) == (2 << 20, 2 << 20)
