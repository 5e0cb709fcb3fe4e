"""The resource of records: in each segment's header, and on lines where it is asked for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from inference_logging.errors import ConfigError
from inference_logging.segments import read_records
from tests.command_line import run
from tests.support import read_lines


def lines_of(config: Config) -> list[dict[str, Any]]:
    with Logger(config) as logger:
        assert logger.event("n", ["n"])(1)
    return read_lines(config.directory)


def test_each_header_has_the_resource_and_no_line_unless_it_is_asked_for(
    configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-7,deployment.environment.name=a%2Cb,x=env")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    header, *others = lines_of(configure(resource={"x": "configured", "service.version": "1.2"}))
    found = header["resource"]
    assert {name: found[name] for name in ("service.name", "service.version", "k8s.pod.name", "x")} == {
        "service.name": "chat",
        "service.version": "1.2",
        "k8s.pod.name": "pod-7",
        "x": "configured",
    }
    assert found["deployment.environment.name"] == "a,b"
    assert uuid.UUID(found["service.instance.id"]).version == 8
    assert found["host.name"]
    assert others
    assert not any("resource" in line for line in others)


def test_each_record_has_the_resource_as_its_last_member_where_it_is_asked_for(
    configure: Callable[..., Config],
) -> None:
    header, *others = lines_of(configure(resource_on_lines="on", resource="a=1\nb=x=y"))
    records = [line for line in others if "pid" in line]
    assert len(records) >= 1
    for record in records:
        assert list(record)[-1] == "resource"
        assert record["resource"] == header["resource"]
    assert (header["resource"]["a"], header["resource"]["b"]) == ("1", "x=y")


def test_a_variable_of_otel_that_is_wrong_is_reported_and_nothing_of_it_is_used(
    configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=%zz")
    header = lines_of(configure())[0]
    assert "a" not in header["resource"]
    assert 'OTEL_RESOURCE_ATTRIBUTES: "b=%zz" is not percent-encoded' in capfd.readouterr().err


@pytest.mark.parametrize(
    ("resource", "value"),
    [({"a b": "1"}, "a b"), ({"a": ""}, "''"), ({"a": "x" * 513}, "xxx"), ("a=1\na=2", "a=1")],
)
def test_an_attribute_that_cannot_be_is_refused_by_parameter_and_value(resource: Any, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(resource=resource)
    assert str(refused.value).count("resource=") == 1
    assert value in str(refused.value)


def test_more_attributes_than_there_may_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="resource: has 65 attributes, must be at most 64"):
        Config(resource={f"a{number}": "1" for number in range(65)})


def test_tail_query_stats_and_verify_read_segments_with_the_resource(configure: Callable[..., Config]) -> None:
    config = configure(resource_on_lines="on", resource={"k8s.pod.name": "pod-7"})
    lines_of(config)
    directory = str(config.directory)
    assert json.loads(run("verify", directory, "--json").out)["problems"] == []
    assert [record["n"] for record in read_records(config.directory) if "n" in record] == [1]
    asked = "SELECT resource->>'k8s.pod.name' AS pod FROM records WHERE event_name = 'n'"
    assert json.loads(run("query", asked, directory, "--format", "json").out) == {"pod": "pod-7"}
    assert '"n":1' in run("tail", directory, "--no-follow", "--json").out or "n=1" in run("tail", directory).out


def test_recover_writes_what_a_process_left_with_the_resource_of_its_own_configuration(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    config = configure(listener="external")
    with Logger(config) as logger:
        assert logger.event("n", ["n"])(1)
    file = tmp_path / "logging.yaml"
    file.write_text(f"version: 1\ndirectory: {config.directory}\nresource: {{a: '1'}}\nresource_on_lines: 'on'\n")
    done = run("recover", "--config", str(file), str(config.queue_directory))
    assert done.code == 0, done
    header, record, *_ = read_lines(config.directory)
    assert (header["resource"]["a"], record["n"], record["resource"]) == ("1", 1, header["resource"])
