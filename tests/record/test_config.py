"""The configuration: order of the sources, what is refused and how it is reported."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from inference_logging.errors import ConfigError, InferenceLoggingError
from inference_logging.record.config import ENV_PREFIX, Config
from inference_logging.record.config.fields import KIB, MIB


@pytest.fixture(autouse=True)
def no_variable_of_tests(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the parameters have their defaults."""
    del clean_environment
    monkeypatch.delenv("INFERENCE_LOGGING_SERVER_RECORD")


def write(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump({"version": 1, **content}))
    return path


def problems(**keywords: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Config(**keywords)
    return caught.value.problems


def test_the_defaults_are_valid_and_stand_without_environment_and_file() -> None:
    config = Config()
    assert (config.queue_bytes, config.flush_interval_s, config.flush_records) == (16 * MIB, 0.5, 100)
    assert (config.health_path, config.health_backlog_records) == ("/health/logging", 10_000)
    assert config == Config(**{parameter.name: parameter.default for parameter in Config.describe()})


def test_keyword_goes_before_environment_before_file_before_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "c.yaml", flush_records=1, rotate_interval_s=11, level="ERROR")
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_RECORDS", "2")
    monkeypatch.setenv("INFERENCE_LOGGING_ROTATE_INTERVAL_S", "12")
    config = Config(config_file=file, flush_records=3)
    assert (config.flush_records, config.rotate_interval_s, config.level) == (3, 12.0, "ERROR")
    assert config.flush_interval_s == 0.5


def test_a_mapping_takes_the_place_of_the_files(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", sample_routes={"/a": 0.5, "/b": 0.5})
    config = Config(config_file=file, sample_routes={"/a": 1.0})
    assert config.sample_routes == (("/a", 1.0),)


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "c.yaml", sample_ratio=0.25)
    monkeypatch.setenv("INFERENCE_LOGGING_CONFIG_FILE", str(file))
    assert Config().sample_ratio == 0.25
    assert Config().config_file == file


def test_every_parameter_can_be_written_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for parameter in Config.describe():
        default = parameter.default
        text = ", ".join(default) if isinstance(default, tuple) else "" if default is None else str(default)
        monkeypatch.setenv(ENV_PREFIX + parameter.name.upper(), text)
    assert Config() == Config(health_path="/health/logging")


def test_every_parameter_but_the_file_itself_can_be_written_in_the_file(tmp_path: Path) -> None:
    content = Config().model_dump(mode="json", exclude={"config_file"})
    file = write(tmp_path / "c.yaml", **content | {"directory": "logs"})
    assert Config(config_file=file) == Config().model_copy(update={"config_file": file})


def test_empty_variables_switch_off_what_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEALTH_PATH", "QUEUE_DIRECTORY", "CONFIG_FILE"):
        monkeypatch.setenv(ENV_PREFIX + name, "")
    config = Config()
    assert (config.health_path, config.queue_directory, config.config_file) == (None, None, None)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("32MiB", 32 * MIB),
        ("32Mi", 32 * MIB),
        (" 32 mib ", 32 * MIB),
        ("1GiB", 1024 * MIB),
        ("64KiB", 65536),
        ("2MB", 2 * MIB),
        ("1000000", MIB),
        (65537, 128 * KIB),
        (4 * 1024 * MIB, 4 * 1024 * MIB),
    ],
)
def test_queue_bytes_takes_units_and_is_rounded_up_to_a_power_of_two(written: object, number: int) -> None:
    assert Config(queue_bytes=written, max_record_bytes="16KiB").queue_bytes == number


@pytest.mark.parametrize("written", ["", "MiB", "1.5MiB", "1TiB", "-1", "0x10000", "1_000_000", "٣MiB", "9" * 30])
def test_a_size_in_another_form_is_refused(written: str) -> None:
    (problem,) = problems(rotate_bytes=written)
    assert problem.startswith(f"rotate_bytes={written!r} (keyword): must be from 4096 to 1099511627776 bytes")


def test_level_is_taken_in_any_case() -> None:
    assert Config(level="warn").level == "WARN"


def test_yaml_off_means_off(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("version: 1\nchunks: off\ncompress: off\n")
    config = Config(config_file=file)
    assert (config.chunks, config.compress) == ("off", "off")


WRONG: dict[str, list[object]] = {
    "service_name": ["a/b", "", ".hidden"],
    "queue_bytes": [60_000, "5GiB"],
    "overflow_info_ratio": [1.01],
    "listener": ["process"],
    "sink": [None, "udp://127.0.0.1:0"],
    "fallback": ["logs"],
    "flush_interval_s": [0, float("nan")],
    "drain_deadline_s": [float("inf")],
    "flush_records": [0, True, 1.5],
    "level": ["WARNING"],
    "sample_ratio": [-1, 1.5, 2.0**-57],
    "sample_precision": [15],
    "sampler": ["always"],
    "slow_s": [-1],
    "budget_records_s": [-1],
    "sample_routes": [0.5, {"/a": "0.5"}, {"/a": True}],
    "chunks": [False],
    "chunk_timeline_limit": [-1],
    "capture_tail_bytes": ["2MiB"],
    "health_path": ["health", "/health?x"],
    "health_backlog_records": [0],
    "health_clear_ratio": [2],
    "directory": [7],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_reported_by_parameter_value_and_what_is_allowed(name: str, value: object) -> None:
    (problem,) = problems(**{name: value})
    allowed = {parameter.name: parameter.allowed for parameter in Config.describe()}[name]
    assert problem == f"{name}={value!r} (keyword): must be {allowed}"


@pytest.mark.parametrize(
    ("name", "value", "wrong", "position"),
    [
        ("skip_paths", ["/ready", "metrics"], "metrics", 2),
        ("skip_paths", "/ready, /a*", "/a*", 2),
        ("skip_paths", ["/a/*/b"], "/a/*/b", 1),
        ("skip_paths", ["/{}"], "/{}", 1),
        ("skip_paths", ["/a b"], "/a b", 1),
        ("trusted_callers", ["10.0.0.0/8", "10.0.0.1/8"], "10.0.0.1/8", 2),
        ("trusted_callers", "10.0.0.0/8, localhost", "localhost", 2),
        ("trusted_callers", ["10.0.0.0/33"], "10.0.0.0/33", 1),
        ("trusted_callers", ["10.0.0.0/255.0.0.0"], "10.0.0.0/255.0.0.0", 1),
        ("trusted_callers", ["fd00::/129"], "fd00::/129", 1),
        ("trusted_callers", [""], "", 1),
        ("sample_routes", {"/a": 1, "v1": 1}, "v1", 2),
        ("sample_routes", {"/a": 1.5}, 1.5, 1),
        ("sample_routes", "/a=1, /b=x", "x", 2),
        ("sample_routes", "/a", "", 1),
    ],
)
def test_a_wrong_item_is_reported_by_itself_with_its_position(
    name: str, value: object, wrong: object, position: int
) -> None:
    allowed = {parameter.name: parameter.allowed for parameter in Config.describe()}[name]
    expected = f"{name}={wrong!r} (item {position} of keyword): must be {allowed}"
    assert problems(**{name: value})[0] == expected


def test_several_values_are_taken_as_list_mapping_or_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, networks, routes = ["/a", "/b/{c}", "/d/*"], ["10.0.0.0/8", "fd00::/8", "*"], {"/a/*": 0.5, "/{b}": 1}
    expected = (("/a", "/b/{c}", "/d/*"), ("10.0.0.0/8", "fd00::/8", "*"), (("/a/*", 0.5), ("/{b}", 1.0)))
    names = ("skip_paths", "trusted_callers", "sample_routes")
    by_keyword = Config(skip_paths=paths, trusted_callers=networks, sample_routes=routes)
    by_file = Config(config_file=write(tmp_path / "c.yaml", **dict(zip(names, (paths, networks, routes), strict=True))))
    for name, text in zip(names, ("/a,/b/{c},/d/*", "10.0.0.0/8, fd00::/8, *", "/a/*=0.5, /{b} = 1"), strict=True):
        monkeypatch.setenv(ENV_PREFIX + name.upper(), text)
    for config in (by_keyword, by_file, Config()):
        assert tuple(getattr(config, name) for name in names) == expected
        assert isinstance(hash(config), int)


@pytest.mark.parametrize("ratio", [0, 2.0**-56, 1])
def test_the_limits_of_sample_ratio_are_allowed(ratio: float) -> None:
    assert Config(sample_ratio=ratio).sample_ratio == ratio


def test_a_record_larger_than_a_quarter_of_the_queue_is_refused() -> None:
    assert problems(queue_bytes="64KiB") == (
        "max_record_bytes=65536: must be at most 16384, a quarter of queue_bytes=65536",
    )


def test_captures_that_do_not_fit_into_a_record_are_refused() -> None:
    (problem,) = problems(capture_tail_bytes="64KiB")
    assert problem.startswith("max_record_bytes=65536: must be at least 139264 to hold a request record")


def test_all_problems_of_all_sources_are_reported_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "c.yaml", queue_byte=1, sink="kafka")
    monkeypatch.setenv("INFERENCE_LOGGING_FLUSH_BYTE", "1")
    monkeypatch.setenv("INFERENCE_LOGGING_CHUNKS", "all")
    found = set(problems(config_file=file, level="LOUD", sampling=1, colour="red"))
    assert found == {
        "queue_byte (file): unknown parameter, the nearest known is queue_bytes",
        "sink='kafka' (file): must be file, stdout, null, udp://host:port, unix:///path",
        "flush_byte (environment INFERENCE_LOGGING_FLUSH_BYTE): unknown parameter, the nearest known is flush_bytes",
        'chunks=\'all\' (environment INFERENCE_LOGGING_CHUNKS): must be one of "off", "summary", "timeline", "events"',
        'level=\'LOUD\' (keyword): must be one of "DEBUG", "INFO", "WARN", "ERROR"',
        "sampling (keyword): unknown parameter, the nearest known is sampler",
        "colour (keyword): unknown parameter",
    }


def test_the_error_is_a_value_error_and_its_message_holds_every_problem() -> None:
    error = ConfigError(["a=1: wrong", "b=2: wrong"])
    assert isinstance(error, ValueError)
    assert isinstance(error, InferenceLoggingError)
    assert str(error) == "inference_logging is configured wrongly:\n  a=1: wrong\n  b=2: wrong"


def test_the_error_can_be_handed_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(ConfigError(["a=1: wrong"])))
    assert error.problems == ("a=1: wrong",)


def test_a_long_value_is_reported_in_part() -> None:
    (problem,) = problems(service_name="x" * 10_000)
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must be a mapping"),
        ("- a\n", "must be a mapping"),
        ("a: [\n", "can't be read: "),
        ("sink: file\n", "must have a line version: 1"),
        ("version: 2\n", "version=2: must be 1"),
        ("version: true\n", "version=True: must be 1"),
        ("version: 1\nconfig_file: other.yaml\n", "config_file: a file can't name another file"),
    ],
)
def test_a_file_that_can_not_be_used_is_reported_with_its_path(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    (problem,) = problems(config_file=file)
    assert problem.startswith(f"config_file={str(file)!r}: {reason}")


def test_a_missing_file_is_reported_together_with_a_wrong_keyword(tmp_path: Path) -> None:
    found = problems(config_file=tmp_path / "none.yaml", level="x")
    assert len(found) == 2
    assert any(problem.endswith("can't be read: No such file or directory") for problem in found)
    assert not any("Errno" in problem for problem in found)


def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = "SERVICE_HOST SERVICE_PORT SERVICE_PORT_HTTP PORT PORT_8080_TCP PORT_8080_TCP_ADDR LISTENER_SERVICE_HOST"
    for name in (*names.split(), "LISTENER_PORT_80_TCP_PROTO"):
        monkeypatch.setenv(ENV_PREFIX + name, "tcp://10.0.0.1:8080")
    assert Config() == Config()


def test_a_configuration_can_not_be_changed() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.level = "ERROR"
    assert {config: 1}[Config()] == 1


def test_a_configuration_can_be_handed_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    written = pickle.dumps(Config(level="ERROR"))
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "DEBUG")
    assert pickle.loads(written).level == "ERROR"


def test_the_queue_directory_is_in_memory_per_user_service_and_configuration() -> None:
    config = Config(service_name="chat")
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    assert config.resolved_queue_directory.parent == root
    assert config.resolved_queue_directory.name.startswith(f"inference_logging-{os.getuid()}-chat-")
    assert Config(service_name="chat", flush_records=7).resolved_queue_directory == config.resolved_queue_directory
    for other in ({"directory": "elsewhere"}, {"redact_patterns": ("email",)}, {"fallback": "stderr"}, {"audit": "on"}):
        assert Config(service_name="chat", **other).resolved_queue_directory != config.resolved_queue_directory


def test_a_configured_queue_directory_is_taken_with_the_home_directory_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Config(queue_directory="~/q").resolved_queue_directory == tmp_path / "q"


def test_the_description_says_what_every_parameter_means() -> None:
    for parameter in Config.describe():
        assert parameter.meaning.endswith("."), parameter.name
        assert parameter.allowed, parameter.name
        assert parameter.type, parameter.name


def test_the_schema_can_be_written_as_json_schema() -> None:
    schema = Config.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {parameter.name for parameter in Config.describe()}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("redact_patterns", '["email", "phone"]', ("email", "phone")),
        ("redact_fields", '["a.b", "c[*]"]', ("a.b", "c[*]")),
        ("redact_fields", "['a.b'][0], password", ("['a.b'][0]", "password")),
        ("skip_paths", ' ["/a", "/b/*"]', ("/a", "/b/*")),
        ("skip_paths", "[]", ()),
        ("sample_routes", '{"/v1/*": 0.5, "/a": 1}', (("/v1/*", 0.5), ("/a", 1.0))),
        ("redact_custom", '{"ticket": "T-[0-9]{3,5}=x"}', (("ticket", "T-[0-9]{3,5}=x"),)),
    ],
)
def test_several_values_in_a_variable_can_be_json(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", text)
    assert getattr(Config(), name) == value


@pytest.mark.parametrize(("name", "text"), [("redact_patterns", '["email"'), ("sample_routes", '{"/a": "half"}')])
def test_several_values_in_json_that_are_wrong_are_named_as_they_stand(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", text)
    with pytest.raises(ConfigError, match=rf"{name}=.*environment INFERENCE_LOGGING_{name.upper()}"):
        Config()
