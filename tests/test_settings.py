"""The package, its JSON schema and the core judge the same values alike; a test of the core reads the same file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inference_logging import Config, ConfigError, Logger, OpenError
from inference_logging._native import Service, Settings
from inference_logging.record.config import FileConfig
from inference_logging.record.config.schema import file_schema
from inference_logging.record.settings import as_json, settings
from tests.support import read_records

ROOT = Path(__file__).parents[1]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/settings.json").read_text())
SCHEMA = jsonschema.Draft7Validator(file_schema())


def at_fault(sentences: tuple[str, ...]) -> set[str]:
    """Return the parameters with which sentences begin; a version is named with its file."""
    names = (re.match(r"(?:config_file='[^']*': (?=config_file|version))?(\w+)", sentence) for sentence in sentences)
    return {name[1] for name in names if name is not None}


def refused_by_package(path: Path) -> set[str]:
    try:
        FileConfig(config_file=path)
    except ConfigError as error:
        return at_fault(error.problems)
    return set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_package_schema_and_core_judge_each_vector_as_it_says(case: dict[str, Any], tmp_path: Path) -> None:
    values, wrong = case["values"], set(case["error"] or ())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"version": 1, **values}))
    assert refused_by_package(tmp_path / "c.yaml") == wrong
    assert SCHEMA.is_valid({"version": 1, **values}) is (not wrong or "together" in case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_core_refuses_the_same_vectors_for_the_same_parameters(case: dict[str, Any]) -> None:
    written = json.dumps(case["values"]).encode()
    if case["error"] is None:
        assert isinstance(Settings(written), Settings)
        return
    with pytest.raises(ValueError, match=r"\w+") as refused:
        Settings(written)
    # An expression that is no expression is reported on several lines.
    assert at_fault(tuple(str(refused.value).splitlines())) >= set(case["error"])


def test_the_schema_that_the_core_has_is_the_one_that_is_published() -> None:
    kept = (ROOT / "native/parameters/src/schema.json").read_text()
    published = json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"
    assert kept == published, "write it anew: inference-logging config schema > native/parameters/src/schema.json"


def test_the_core_gets_every_parameter_but_the_file(tmp_path: Path) -> None:
    given = json.loads(as_json(Config()))
    assert set(given) == set(file_schema()["properties"]) - {"version", "advanced"}
    assert json.loads(as_json(Config(), queue_directory="/q"))["queue_directory"] == "/q"


def test_of_a_route_that_stands_twice_the_first_ratio_is_reported_as_it_is_the_one_that_counts() -> None:
    given = json.loads(as_json(Config(sample_routes="/a=0.5, /b=1, /a=0.25")))
    assert list(given["sample_routes"].items()) == [("/a", 0.5), ("/b", 1.0)]


def test_an_expression_whose_name_stands_twice_is_refused_and_not_forgotten() -> None:
    with pytest.raises(ConfigError, match=r"redact_custom=.*keyword"):
        Config(redact_custom="id=a\nid=b")


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"directory=.* must be a path"):
        Config(directory=Path("/tmp/\udcff"))


def test_a_configuration_that_was_changed_into_a_wrong_one_is_refused_when_it_is_opened(
    configure: Callable[..., Config],
) -> None:
    changed = configure().model_copy(update={"max_record_bytes": 1 << 20, "quota_bytes": 1})
    with pytest.raises(ConfigError, match="a quarter of queue_bytes") as refused:
        Logger(changed)
    assert at_fault(refused.value.problems) == {"max_record_bytes", "quota_bytes"}


def test_a_lane_that_there_is_not_is_refused(configure: Callable[..., Config]) -> None:
    with pytest.raises(ValueError, match='lane="slow": must be fast or audit'):
        Service(settings(configure()), "slow")
    with pytest.raises(OSError, match="queue_directory: must be named"):
        Service(settings(Config()), "fast")


def test_the_audit_lane_is_the_same_service_with_its_lane_named(configure: Callable[..., Config]) -> None:
    config = configure(audit="on", audit_commit_interval_s=0.01)
    for lane, directory in (("fast", config.directory), ("audit", config.resolved_audit_directory)):
        service = Service(settings(config), lane)
        assert service.event("made", ["value"], 9)(lane)
        assert service.close(10.0)
        assert [record["value"] for record in read_records(directory, "made")] == [lane]


def test_what_is_wrong_with_the_audit_lanes_key_is_reported_with_the_lane(configure: Callable[..., Config]) -> None:
    with pytest.raises(OpenError, match="audit lane: audit_chain_key_file=/nowhere: No such file"):
        Logger(configure(audit="on", audit_chain_key_file="/nowhere"))
