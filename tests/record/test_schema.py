"""The package, its JSON schema and the core judge the same values alike; a test of the core reads the same file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_logging import Config, ConfigError, Logger, OpenError
from inference_logging._native import Service, Settings
from inference_logging.record.config import FileConfig
from inference_logging.record.config.schema import file_schema, whole_numbers
from inference_logging.record.settings import as_json
from inference_logging.record.settings import settings as core_settings
from tests.kit.signatures import Configure
from tests.kit.support import read_records

SCHEMA = file_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
NAMES = [parameter.name for parameter in Config.describe() if parameter.name != "config_file"]
ADVANCED = [parameter.name for parameter in Config.describe() if parameter.advanced]
GOOD: list[dict[str, Any]] = [
    {"additional_sinks": [f"unix:///{n}" for n in range(6)]}, {"additional_sinks": []},
    {"additional_sinks": ["stdout", "udp://localhost:1", "unix:///a", "file:///b"]},
    {"sink": "udp://127.0.0.1:9000"}, {"sink": "udp://[::1]:65535"}, {"sink": "udp://vector.logging.svc:514"},
    {"sink": "unix:///run/aggregator.sock"}, {"fallback": "stderr"}, {"fallback": "/var/log/fallback"},
    {},
    {"service_name": "chat", "directory": "/var/log/inference", "queue_bytes": "32MiB", "chunks": "summary"},
    {"queue_bytes": "1 GiB", "rotate_bytes": 4096, "writeback_bytes": "64Ki", "flush_bytes": " 0064 kib "},
    {"queue_bytes": "1000000", "max_record_bytes": "16KB"},
    {"sample_ratio": 0}, {"sample_ratio": 1}, {"sample_ratio": 2.0**-56}, {"sample_ratio": 0.1, "sample_precision": 14},
    {"level": "warn"}, {"level": "Debug"},
    {"health_path": ""}, {"health_path": None}, {"health_path": "/a/b"}, {"queue_directory": ""},
    {"chunks": False, "compress": False}, {"listener": "external"}, {"sink": "null"},
    {"skip_paths": []}, {"skip_paths": ["/a", "/{b}/*", "/é"]}, {"trusted_callers": ["*"]}, {"sample_routes": {}},
    {"trusted_callers": ["10.0.0.0/8", "::1", "fd00::/8"]}, {"sample_routes": {"/v1/*": 0.1, "/{a}": 0, "/": 1}},
    {"flush_records": 1}, {"flush_records": 100.0}, {"drain_deadline_s": 0}, {"rotate_interval_s": 2678400},
    {"advanced": {}}, {"advanced": {"flush_records": 1, "trace_source": "header"}},
    {"advanced": {"flush_records": 1}, "flush_bytes": "64KiB"}, {"advanced": {"retention_waits_for": []}},
]  # fmt: skip
BAD: list[dict[str, Any]] = [
    {"additional_sinks": ["stdout", "stdout"]}, {"additional_sinks": [f"unix:///{n}" for n in range(7)]},
    {"additional_sinks": ["file"]}, {"additional_sinks": ["null"]}, {"fallback": "logs"}, {"fallback": "stdout"},
    {"sink": "udp://127.0.0.1"}, {"sink": "udp://127.0.0.1:0"}, {"sink": "udp://127.0.0.1:65536"},
    {"sink": "udp://:9000"}, {"sink": "unix://relative"}, {"sink": "file:///other"}, {"sink": "tcp://127.0.0.1:9000"},
    {"fallback_delay_s": -1}, {"sink_buffer_bytes": "1KiB"},
    {"service_name": "a/b"}, {"service_name": ""}, {"service_name": None}, {"service_name": ".x"}, {"service_name": 7},
    {"queue_bytes": 65535}, {"queue_bytes": "5GiB"}, {"queue_bytes": "4295MB"}, {"queue_bytes": "1.5MiB"},
    {"queue_bytes": ""}, {"queue_bytes": "63KiB"}, {"queue_bytes": None}, {"queue_bytes": True},
    {"flush_records": 0}, {"flush_records": "100"}, {"flush_records": 1.5}, {"flush_records": True},
    {"flush_interval_s": 0.001}, {"flush_interval_s": "0.5"}, {"flush_interval_s": None},
    {"sample_ratio": 1.01}, {"sample_ratio": 2.0**-57}, {"sample_ratio": -1}, {"sample_ratio": "0.5"},
    {"level": "WARNING"}, {"level": False}, {"sink": None}, {"sink": False}, {"chunks": True}, {"chunks": "Off"},
    {"health_path": "health"}, {"health_path": "/a b"}, {"health_path": "/" + "x" * 256}, {"directory": 7},
    {"skip_paths": "/a"}, {"skip_paths": ["a"]}, {"skip_paths": ["/*/a"]}, {"skip_paths": [7]}, {"skip_paths": None},
    {"trusted_callers": ["me"]}, {"trusted_callers": "*"}, {"sample_routes": {"a": 1}}, {"sample_routes": {"/a": 2}},
    {"sample_routes": {"/a": "1"}}, {"sample_routes": {"/a": True}}, {"sample_routes": []}, {"sample_routes": "/a=1"},
    {"ship_name": "a b"}, {"ship_name": "x" * 61}, {"retention_waits_for": ["a b"]}, {"ship_to": "kafka://a:1"},
    {"ship_to": "s3://b/x?format=csv"}, {"ship_to": "s3://bucket?region=a&b=1"},
    {"advanced": None}, {"advanced": []}, {"advanced": "flush_records"}, {"advanced": {"flush_records": 0}},
    {"advanced": {"flush_record": 1}}, {"advanced": {"queue_bytes": "1MiB"}}, {"advanced": {"version": 1}},
    {"advanced": {"flush_records": 1}, "flush_records": 1}, {"advanced": {"advanced": {}}},
    {"advanced": {"config_file": "other.yaml"}}, {"advanced": {7: 7}}, {"advanced": {"retention_waits_for": "kafka"}},
    {"queu_bytes": 65536}, {"config_file": "other.yaml"}, {"version": 2}, {"version": "1"}, {"version": None},
]  # fmt: skip


def is_refused_by_check(content: dict[str, Any], path: Path) -> bool:
    path.write_text(yaml.safe_dump(content))
    try:
        FileConfig(config_file=path)
    except ConfigError:
        return True
    return False


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("content", GOOD, ids=str)
def test_what_check_accepts_the_schema_accepts(content: dict[str, Any], tmp_path: Path) -> None:
    content = {"version": 1, **content}
    assert not is_refused_by_check(content, tmp_path / "c.yaml")
    VALIDATOR.validate(content)


@pytest.mark.parametrize("content", BAD, ids=str)
def test_what_check_refuses_the_schema_refuses(content: dict[str, Any], tmp_path: Path) -> None:
    content = {"version": 1, **content}
    assert is_refused_by_check(content, tmp_path / "c.yaml")
    assert not VALIDATOR.is_valid(content)


def test_a_file_without_a_version_is_refused_by_both(tmp_path: Path) -> None:
    assert is_refused_by_check({"level": "INFO"}, tmp_path / "c.yaml")
    assert not VALIDATOR.is_valid({"level": "INFO"})


# One value of each kind, so that no parameter's schema goes untested until chance finds it.
DISTINCT: list[Any] = [
    None, True, False, -1, 0, 1, 2, 100, 4096, 65536, 1 << 31, 0.5, 1.5, -0.5, 1e9,
    "", "off", "on", "auto", "info", "file", "null", "a", "a b", "0 ", "é", "x" * 61, "x" * 300,
    "/", "/a", "/a b", "/*/a", "1", "0.5", "64KiB", "1 GiB", "a=1", "a:1",
    "kafka", "kafka://a:1/t", "otlp+http://a", "unix:///a", "journald:///a",
    [], ["a"], ["a b"], ["/a"], ["x" * 61], ["a", "a"], [7], [None], ["unix:///a"], ["10.0.0.0/8"],
    {}, {"a": 1}, {"/a": 0.5}, {"/a": 2}, {"a": "b"}, {"a b": "c"}, {"a": None},
]  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 1 << 41),
    st.sampled_from([0, 1, 63, 64, 4095, 4096, 65535, 65536]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(0, 1),
    st.sampled_from(["", "off", "/", "info", "file", "null", "a", "1", "0.5", "a b"]),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", " ", "00"]),
        # Limits in some unit, and numbers just beyond them.
        st.sampled_from([0, 1, 2, 4, 5, 16, 17, 64, 65, 1024, 1025]) | st.integers(0, 1 << 14),
        st.sampled_from(["", " "]),
        st.sampled_from(["", "B", "k", "Ki", "KiB", "m", "MIB", "gb", "Gi", "GiB", "TiB"]),
    ),
)


def refused(content: dict[str, Any], path: Path) -> set[str]:
    """Return the parameters that the check refuses in a file."""
    path.write_text(yaml.safe_dump({"version": 1, **content}))
    try:
        FileConfig(config_file=path)
    except ConfigError as error:
        # What several parameters must fulfil together has no one origin.
        return {problem.partition("=")[0] for problem in error.problems if "file)" in problem}
    return set()


@pytest.mark.parametrize("value", DISTINCT, ids=repr)
def test_schema_and_check_agree_on_each_decisive_value_of_each_parameter(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    by_schema = {name for name in NAMES if not VALIDATOR.is_valid({"version": 1, name: value})}
    assert refused(dict.fromkeys(NAMES, value), path) == by_schema
    in_group = {name for name in ADVANCED if not VALIDATOR.is_valid({"version": 1, "advanced": {name: value}})}
    assert refused({"advanced": dict.fromkeys(ADVANCED, value)}, path) == in_group


@pytest.mark.servers
@settings(max_examples=400)
@given(name=st.sampled_from(NAMES), value=VALUES, place=st.sampled_from(["outside", "inside", "both"]))
def test_schema_and_check_agree_on_any_value_of_any_one_parameter(
    name: str, value: Any, place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = {name: value} if place != "inside" else {}
    inside = {"advanced": {name: value}} if place != "outside" else {}
    content = outside | inside
    valid = VALIDATOR.is_valid({"version": 1, **content})
    assert valid is not bool(refused(content, tmp_path_factory.getbasetemp() / "any.yaml"))


@given(low=st.integers(0, 1 << 40), length=st.integers(0, 1 << 40), other=st.integers(0, 1 << 41))
def test_a_range_of_numbers_as_a_pattern_matches_exactly_the_numbers_in_it(low: int, length: int, other: int) -> None:
    high = low + length
    pattern = re.compile(whole_numbers(low, high))
    for number in (low, high, low + length // 2, low - 1, high + 1, other):
        if number >= 0:
            assert bool(pattern.fullmatch(str(number))) is (low <= number <= high), number


def test_every_parameter_stands_in_it_with_meaning_and_unit_and_nothing_else_is_allowed() -> None:
    assert SCHEMA["additionalProperties"] is False
    assert SCHEMA["required"] == ["version"]
    visible = [name for name in NAMES if name not in ADVANCED]
    assert list(SCHEMA["properties"]) == ["version", *visible, "advanced", *ADVANCED]
    assert list(SCHEMA["properties"]["advanced"]["properties"]) == ADVANCED
    assert SCHEMA["properties"]["advanced"]["additionalProperties"] is False
    for parameter in Config.describe():
        if parameter.name != "config_file":
            described = SCHEMA["properties"][parameter.name]
            assert parameter.meaning in described["description"]
            assert parameter.allowed in described["description"]
            assert described.get("unit", "") == parameter.unit


def test_its_defaults_are_valid() -> None:
    VALIDATOR.validate({"version": 1} | {name: SCHEMA["properties"][name]["default"] for name in NAMES})


def test_its_patterns_keep_to_the_syntax_that_go_and_javascript_share_with_python() -> None:
    def patterns(schema: Any) -> list[str]:
        if isinstance(schema, list):
            return [found for part in schema for found in patterns(part)]
        if not isinstance(schema, dict):
            return []
        own = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
        return own + [found for part in schema.values() for found in patterns(part)]

    found = patterns(SCHEMA)
    assert len(found) > 5
    for pattern in found:
        assert not re.search(r"\(\?(?!:)|\\[sSdDwWbBAzZ]", pattern), pattern


ROOT = Path(__file__).parents[2]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/settings.json").read_text())
JUDGE = jsonschema.Draft7Validator(file_schema())


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
    assert JUDGE.is_valid({"version": 1, **values}) is (not wrong or "together" in case)


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


def test_a_configuration_that_was_changed_into_a_wrong_one_is_refused_when_it_is_opened(configure: Configure) -> None:
    changed = configure().model_copy(update={"max_record_bytes": 1 << 20, "quota_bytes": 1})
    with pytest.raises(ConfigError, match="a quarter of queue_bytes") as refused:
        Logger(changed)
    assert at_fault(refused.value.problems) == {"max_record_bytes", "quota_bytes"}


def test_a_lane_that_there_is_not_is_refused(configure: Configure) -> None:
    with pytest.raises(ValueError, match='lane="slow": must be fast or audit'):
        Service(core_settings(configure()), "slow")
    with pytest.raises(OSError, match="queue_directory: must be named"):
        Service(core_settings(Config()), "fast")


def test_the_audit_lane_is_the_same_service_with_its_lane_named(configure: Configure) -> None:
    config = configure(audit="on", audit_commit_interval_s=0.01)
    for lane, directory in (("fast", config.directory), ("audit", config.resolved_audit_directory)):
        service = Service(core_settings(config), lane)
        assert service.event("made", ["value"], 9)(lane)
        assert service.close(10.0)
        assert [record["value"] for record in read_records(directory, "made")] == [lane]


def test_what_is_wrong_with_the_audit_lanes_key_is_reported_with_the_lane(configure: Configure) -> None:
    with pytest.raises(OpenError, match="audit lane: audit_chain_key_file=/nowhere: No such file"):
        Logger(configure(audit="on", audit_chain_key_file="/nowhere"))
