"""Which sinks can be configured, and what is said where they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from inference_logging import Config
from inference_logging.errors import ConfigError
from inference_logging.record.config.schema import file_schema

SCHEMA = jsonschema.Draft7Validator(file_schema())

GOOD: list[dict[str, Any]] = [
    {"sink": "udp://127.0.0.1:9000"},
    {"sink": "udp://[::1]:65535"},
    {"sink": "udp://vector.logging.svc:514"},
    {"sink": "unix:///run/aggregator.sock"},
    {"fallback": "stderr"},
    {"fallback": "/var/log/fallback"},
    {"additional_sinks": ["stdout", "udp://localhost:1", "unix:///a", "file:///b"]},
]
BAD: list[dict[str, Any]] = [
    {"sink": "udp://127.0.0.1"},
    {"sink": "udp://127.0.0.1:0"},
    {"sink": "udp://127.0.0.1:65536"},
    {"sink": "udp://:9000"},
    {"sink": "unix://relative"},
    {"sink": "file:///other"},
    {"sink": "tcp://127.0.0.1:9000"},
    {"fallback": "logs"},
    {"fallback": "stdout"},
    {"additional_sinks": ["file"]},
    {"additional_sinks": ["null"]},
    {"fallback_delay_s": -1},
    {"sink_buffer_bytes": "1KiB"},
]


@pytest.mark.parametrize("values", GOOD, ids=str)
def test_a_sink_is_accepted_by_the_check_and_by_the_schema(values: dict[str, Any]) -> None:
    config = Config(**values)
    name, value = next(iter(values.items()))
    assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)
    SCHEMA.validate({"version": 1, **values})


@pytest.mark.parametrize("values", BAD, ids=str)
def test_what_names_no_sink_is_refused_by_both_with_its_value(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(ConfigError) as caught:
        Config(**values)
    problem = caught.value.problems[0]
    assert problem.startswith(name)
    assert str(value[0] if isinstance(value, list) else value) in problem
    assert not SCHEMA.is_valid({"version": 1, **values})


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
