"""`inference-logging config`: what is shown, what check says and with which exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inference_logging import Config
from inference_logging.errors import ConfigError
from inference_logging.record.config.schema import file_schema
from tests.kit.command_line import run

REFERENCE = Path(__file__).parents[2] / "docs" / "parameters.md"


@pytest.fixture(autouse=True)
def no_variable_of_tests(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the parameters have their defaults."""
    del clean_environment
    monkeypatch.delenv("INFERENCE_LOGGING_SERVER_RECORD")


def shown(*arguments: str) -> dict[str, Any]:
    result = run("config", "show", "--json", *arguments)
    assert result.code == 0, result.out
    content = json.loads(result.out)
    assert isinstance(content, dict)
    return content


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "logging.yaml"
    path.write_text("version: 1\nservice_name: chat\nflush_records: 7\nqueue_bytes: 100KiB\nmax_record_bytes: 16KiB\n")
    return path


def test_show_says_of_each_value_where_it_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_RECORDS", "8")
    monkeypatch.setenv("INFERENCE_LOGGING_ROTATE_INTERVAL_S", "60")
    parameters = shown("--file", str(file), "--set", "rotate_interval_s=61")["parameters"]
    assert list(parameters) == [parameter.name for parameter in Config.describe()]
    assert parameters["service_name"] == {"value": "chat", "unit": "", "origin": f"file {file}"}
    assert parameters["flush_records"] == {
        "value": 8, "unit": "records", "origin": "environment INFERENCE_LOGGING_FLUSH_RECORDS"
    }  # fmt: skip
    assert parameters["rotate_interval_s"] == {"value": 61.0, "unit": "s", "origin": "keyword"}
    assert parameters["level"]["origin"] == "default"
    assert parameters["queue_bytes"]["value"] == 131072


def test_show_names_the_file_that_the_environment_names(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_CONFIG_FILE", str(file))
    parameters = shown()["parameters"]
    assert parameters["service_name"] == {"value": "chat", "unit": "", "origin": f"file {file}"}
    assert parameters["config_file"]["origin"] == "environment INFERENCE_LOGGING_CONFIG_FILE"


def test_show_gives_what_follows_from_the_parameters() -> None:
    derived = shown("--set", "sample_ratio=0.1", "--set", "queue_directory=/q")["derived"]
    # The specification's own example: 10 % at precision 4 is e666.
    assert derived["sample_th"] == "e666"
    assert derived["sample_threshold"] == 0xE666 << 40
    assert derived["sample_adjusted_count"] == pytest.approx(10, rel=1e-4)
    assert derived["resolved_queue_directory"] == "/q"
    assert shown("--set", "sample_ratio=0")["derived"]["sample_th"] is None


@pytest.mark.parametrize("settings", [(), ("--set", "sink=null", "--set", "chunks=off", "--set", "sample_ratio=1e-5")])
def test_what_show_prints_is_a_configuration_file_with_the_same_values(
    settings: tuple[str, ...], file: Path, tmp_path: Path
) -> None:
    result = run("config", "show", "--file", str(file), *settings)
    again = tmp_path / "again.yaml"
    again.write_text(result.out)
    before = Config(**dict(setting.split("=") for setting in settings[1::2]), config_file=file)
    assert Config(config_file=again) == before.model_copy(update={"config_file": again})
    jsonschema.validate(yaml.safe_load(result.out), file_schema())


@pytest.mark.parametrize("changed", [(), ("--changed",)], ids=["all", "changed"])
def test_show_has_the_group_last_and_its_values_can_be_read_back(
    changed: tuple[str, ...], file: Path, tmp_path: Path
) -> None:
    result = run("config", "show", "--config", str(file), "--set", "redact_replacement=x: y", *changed)
    content = yaml.safe_load(result.out)
    assert list(content)[-1] == "advanced"
    assert {"flush_records": 7, "redact_replacement": "x: y"}.items() <= content["advanced"].items()
    names = {parameter.name for parameter in Config.describe() if parameter.advanced}
    assert set(content["advanced"]) == (names if not changed else {"flush_records", "redact_replacement"})
    again = tmp_path / "again.yaml"
    again.write_text(result.out)
    before = Config(config_file=file, redact_replacement="x: y")
    assert Config(config_file=again) == before.model_copy(update={"config_file": again})
    jsonschema.validate(content, file_schema())


def test_show_names_the_file_also_for_what_stands_in_its_group(tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text("version: 1\nadvanced: {flush_records: 7}\n")
    assert shown("--config", str(path))["parameters"]["flush_records"]["origin"] == f"file {path}"
    assert run("config", "check", str(path)).out.startswith(f"{path}: valid, 1 of ")


def test_show_keeps_the_order_of_routes_of_which_the_first_that_matches_counts(tmp_path: Path) -> None:
    path, again = tmp_path / "routes.yaml", tmp_path / "again.yaml"
    path.write_text("version: 1\nsample_ratio: 0\nsample_routes: {/v1/*: 0.1, /a/*: 0, /: 1}\n")
    again.write_text(run("config", "show", "--file", str(path)).out)
    assert Config(config_file=again).sample_routes == (("/v1/*", 0.1), ("/a/*", 0.0), ("/", 1.0))
    derived = shown("--file", str(path))["derived"]
    assert list(derived["sample_routes_th"].items()) == [("/v1/*", "e666"), ("/a/*", None), ("/", "0")]


def test_show_fails_with_the_problems_where_the_configuration_is_wrong() -> None:
    result = run("config", "show", "--set", "flush_records=0")
    assert result.code == 2
    assert result.err.splitlines()[1].startswith("  flush_records='0' (keyword): must be a whole number from 1 to")


def test_a_setting_without_a_value_is_wrong_usage() -> None:
    result = run("config", "show", "--set", "flush_records")
    assert result.code == 2
    assert "'flush_records': must be NAME=VALUE" in result.err


def test_check_says_one_line_of_a_right_file(file: Path) -> None:
    result = run("config", "check", str(file))
    of = len(Config.describe())
    assert (result.code, result.out) == (0, f"{file}: valid, 4 of {of} parameters set\n")


def test_check_says_each_problem_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text('version: 1\nflush_records: 0\nlevl: INFO\nflush_interval_s: "1"\nservice_name: "a\\nb"\n')
    result = run("config", "check", str(path))
    assert result.code == 1
    lines = sorted(result.out.splitlines())
    assert [": ".join(line.split(": ")[:2]) for line in lines] == [
        f"{path}:2: flush_records=0 (file)",
        f"{path}:3: levl (file)",
        f"{path}:4: flush_interval_s='1' (file)",
        rf"{path}:5: service_name='a\nb' (file)",
    ]
    assert lines[2].endswith("must be a number from 0.01 to 60 (s), without quotes")
    path.write_text("version: 1\nflush_interval_s: fast\n")
    assert run("config", "check", str(path)).out.endswith("must be a number from 0.01 to 60 (s)\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("audit: on", 'audit=True (file): must be one of "off", "on"'),
        ("fallback: no", "fallback=False (file): must be none, stderr, or the absolute path of a directory"),
        ("advanced: {resource_on_lines: true}", 'resource_on_lines=True (file): must be one of "off", "on"'),
        ("record_headers: [on]", "record_headers=True (item 1 of file): must be at most 16 of name, "),
    ],
)
def test_check_hints_at_quotes_where_yaml_made_a_truth_value_of_a_word(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(f"version: 1\n{line}\n")
    said = run("config", "check", str(path)).out
    assert said.startswith(f"{path}:2: {problem}")
    words = "off, no and false" if "False" in problem else "on, yes and true"
    assert said.endswith(f"; YAML reads {words} as a truth value unless they are in quotes\n")


def test_check_hints_at_no_quotes_where_no_such_word_is_a_value_and_where_no_file_is(tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(
        "version: 1\nflush_records: true\nqueue_bytes: on\nsample_ratio: no\nchunks: yes\ntrace_source: off\n"
    )
    said = run("config", "check", str(path)).out
    assert (said.count("\n"), "YAML" in said) == (5, False)
    with pytest.raises(ConfigError) as raised:
        Config(audit=True)
    assert "YAML" not in str(raised.value)


def test_check_names_the_lines_of_the_group(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "version: 1\nadvanced:\n  flush_records: 0\n  flush_bites: 1\n  queue_bytes: 1MiB\n  flush_bytes: 64KiB\n"
        "flush_bytes: 65KiB\nservice_name: a/b\n"
    )
    result = run("config", "check", str(path))
    assert result.code == 1
    assert [": ".join(line.split(": ")[:2]) for line in sorted(result.out.splitlines())] == [
        f"{path}:3: flush_records=0 (file)",
        f"{path}:4: advanced.flush_bites=1 (file)",
        f"{path}:5: advanced.queue_bytes='1MiB' (file)",
        f"{path}:6: advanced.flush_bytes='64KiB' (file)",
        f"{path}:8: service_name='a/b' (file)",
    ]
    path.write_text("version: 1\n\nadvanced: 7\n")
    assert run("config", "check", str(path)).out.startswith(f"{path}:3: advanced=7 (file): must be a mapping")


def test_check_of_a_file_does_not_let_the_environment_hide_a_mistake_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("version: 1\nflush_records: 0\n")
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_RECORDS", "9")
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "wrong")
    result = run("config", "check", str(path))
    assert (result.code, result.out.count("\n")) == (1, 1)
    assert result.out.startswith(f"{path}:2: flush_records=0 (file)")


def test_check_names_the_line_also_of_a_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("version: 1\n\n# a comment\nqueue_bytes: 64KiB\nmax_record_bytes: 32KiB\nlevel: INFO\n")
    monkeypatch.setenv("INFERENCE_LOGGING_CONFIG_FILE", str(path))
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "wrong")
    level = run("config", "check")
    assert (level.code, level.out.count("\n")) == (1, 1)
    assert level.out.startswith("level='wrong' (environment INFERENCE_LOGGING_LEVEL)")
    monkeypatch.delenv("INFERENCE_LOGGING_LEVEL")
    assert run("config", "check").out.startswith(f"{path}:5: max_record_bytes=32768: must be at most 16384")
    assert run("config", "check", "--config", str(path)).out.startswith(f"{path}:5: ")


def test_show_changed_leaves_the_defaults_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "DEBUG")
    assert list(shown("--changed", "--config", str(file), "--set", "flush_bytes=70000")["parameters"]) == [
        parameter.name for parameter in Config.describe()
        if parameter.name in {"service_name", "flush_records", "queue_bytes", "max_record_bytes", "level",
                              "flush_bytes", "config_file"}
    ]  # fmt: skip
    out = run("config", "show", "--changed", "--service-name", "talk").out.splitlines()
    assert [line.split()[0] for line in out] == ["version:", "service_name:", "level:"] or [
        line.split()[0] for line in out
    ] == ["version:", "level:", "service_name:"]
    monkeypatch.delenv("INFERENCE_LOGGING_LEVEL")
    assert run("config", "show", "--changed").out == "version: 1\n"


def test_check_without_a_file_checks_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_RECORDS", "9")
    result = run("config", "check")
    assert (result.code, result.out.split(" of ")[0]) == (0, "environment and file: valid, 1")
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "wrong")
    result = run("config", "check")
    assert (result.code, result.out.split("=")[0]) == (1, "level")


def test_check_of_a_missing_file_is_a_wrong_command_line(tmp_path: Path) -> None:
    result = run("config", "check", str(tmp_path / "none.yaml"))
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert f"{tmp_path / 'none.yaml'}: no such file" in result.err


def test_docs_prints_the_reference_that_the_repository_has() -> None:
    result = run("config", "docs")
    # To write it anew: inference-logging config docs > docs/parameters.md
    assert (result.code, result.out) == (0, REFERENCE.read_text(encoding="utf-8"))
    tables = result.out.split("## Group advanced")
    rows = [re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) for table in tables]
    described = Config.describe()
    assert rows == [[parameter.name for parameter in described if parameter.advanced is one] for one in (False, True)]
    # A bar that ends a cell too early would be one too many.
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in result.out.splitlines() if row.startswith("|")} == {7}


def test_schema_prints_the_schema() -> None:
    result = run("config", "schema")
    assert (result.code, json.loads(result.out)) == (0, file_schema())
