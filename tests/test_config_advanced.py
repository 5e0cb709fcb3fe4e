"""The group of advanced parameters: few are visible, each of the others may stand inside or outside of the group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging.errors import ConfigError
from inference_logging.record.config import Config, FileConfig
from inference_logging.record.config.fields import GROUP

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
    (
        {"stuck_after_s": 2},
        "advanced.stuck_after_s=2 ({origin}): must be given once, but stuck_after_s=1 is there too",
    ),
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
