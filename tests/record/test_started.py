"""`server.started`, the resource of records, and events whose names are the listener's own."""

from __future__ import annotations

import json
import platform
import sys
import uuid
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.errors import ConfigError
from inference_logging.record.integrations.vllm.server import reported_by
from inference_logging.record.started import FIELDS, configuration_digest, record_start
from inference_logging.segments import read_records
from tests.kit.command_line import run
from tests.kit.segment_files import Writer, log, until_set, write_segment
from tests.kit.signatures import Configure
from tests.kit.support import Client, read_lines, serve_one
from tests.ship.shipper_parts import ship, source


def started(config: Config) -> list[dict[str, Any]]:
    return [line for line in read_lines(config.directory) if line["event_name"] == "server.started"]


def serve(config: Config, middlewares: int = 1) -> None:
    """Let so many middlewares of one application go through a lifespan."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})

    wrapped: Any = app
    for _ in range(middlewares):
        wrapped = InferenceLoggingMiddleware(wrapped, config)

    serve_one(wrapped, {"type": "lifespan"}, Client([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]))


@pytest.mark.parametrize("middlewares", [1, 2])
def test_a_process_makes_one_record_with_its_versions_and_the_digest_of_its_configuration(
    configure: Configure, middlewares: int
) -> None:
    config = configure(server_record="on")
    serve(config, middlewares)
    (record,) = started(config)
    assert record["process.runtime.version"] == platform.python_version()
    assert (record["telemetry.distro.name"], record["telemetry.distro.version"]) == (
        "inferlog",
        metadata.version("inferlog"),
    )
    assert record["configuration.digest"] == configuration_digest(config)
    assert set(record) - {*FIELDS} == {"timestamp", "severity_text", "event_name", "boot_id", "pid", "seq"}


def test_the_server_is_named_with_its_version(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn.server", ModuleType("uvicorn.server"))
    monkeypatch.delitem(sys.modules, "gunicorn.arbiter", raising=False)
    config = configure(server_record="on")
    serve(config)
    (record,) = started(config)
    assert (record["server.name"], record["server.version"]) == ("uvicorn", metadata.version("uvicorn"))


def test_without_the_parameter_there_is_none(configure: Configure) -> None:
    config = configure(server_record="off")
    serve(config)
    assert started(config) == []


def test_the_digest_is_of_every_parameter(configure: Configure) -> None:
    digest = configuration_digest(configure())
    assert digest == configuration_digest(configure())
    assert (
        len({digest, configuration_digest(configure(slow_s=9.0)), configuration_digest(configure(chunks="off"))}) == 3
    )


def test_an_event_of_the_same_name_with_other_fields_is_no_reason_to_fail(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    with Logger(configure(server_record="on")) as logger:
        logger.event("server.started", ["own"])
        assert record_start(logger) is False
        assert record_start(logger) is False
    assert capsys.readouterr().err.count("no server.started record was written") == 1


def engine(**changes: Any) -> Any:
    """Return an engine client like vLLM's, with secrets among its arguments."""
    configs = {
        "model_config": SimpleNamespace(
            model="org/model",
            revision="abc",
            dtype="torch.bfloat16",
            quantization="fp8",
            max_model_len=4096,
            seed=0,
            hf_token="canary-token",
        ),
        "parallel_config": SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1),
        "cache_config": SimpleNamespace(block_size=16, gpu_memory_utilization=0.9, path="canary-path"),
        "scheduler_config": SimpleNamespace(max_num_seqs=256, api_key="canary-key"),
        "load_config": SimpleNamespace(load_format="auto", download_dir="canary-directory"),
        **changes,
    }
    return SimpleNamespace(vllm_config=SimpleNamespace(**configs), api_key="canary-client")


def test_vllm_reports_model_parallelism_and_arguments_and_no_secret() -> None:
    reported = reported_by(engine())
    assert reported["model.name"] == "org/model"
    assert (reported["model.revision"], reported["model.dtype"], reported["model.quantization"]) == (
        "abc",
        "bfloat16",
        "fp8",
    )
    assert reported["engine.parallelism"] == {"tensor": 2, "pipeline": 1, "data": 1}
    arguments = reported["engine.arguments"]
    assert isinstance(arguments, dict)
    assert arguments["cache_config.block_size"] == 16
    assert arguments["scheduler_config.max_num_seqs"] == 256
    assert "canary" not in json.dumps(reported)
    assert set(reported) <= set(FIELDS)


@pytest.mark.parametrize("client", [object(), SimpleNamespace(vllm_config=None), engine(model_config=None)])
def test_what_another_version_of_vllm_lacks_is_left_out(client: Any) -> None:
    reported = reported_by(client)
    assert reported["engine.name"] == "vllm"
    assert "model.name" not in reported


def test_what_is_reported_stands_in_the_record(configure: Configure) -> None:
    config = configure(server_record="on")
    with Logger(config) as logger:
        assert record_start(logger, reported_by(engine())) is True
    (record,) = started(config)
    assert record["engine.parallelism"] == {"tensor": 2, "pipeline": 1, "data": 1}
    assert record["engine.name"] == "vllm"


def lines_of(config: Config) -> list[dict[str, Any]]:
    with Logger(config) as logger:
        assert logger.event("n", ["n"])(1)
    return read_lines(config.directory)


def test_each_header_has_the_resource_and_no_line_unless_it_is_asked_for(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
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


def test_each_record_has_the_resource_as_its_last_member_where_it_is_asked_for(configure: Configure) -> None:
    header, *others = lines_of(configure(resource_on_lines="on", resource="a=1\nb=x=y"))
    records = [line for line in others if "pid" in line]
    assert len(records) >= 1
    for record in records:
        assert list(record)[-1] == "resource"
        assert record["resource"] == header["resource"]
    assert (header["resource"]["a"], header["resource"]["b"]) == ("1", "x=y")


def test_a_variable_of_otel_that_is_wrong_is_reported_and_nothing_of_it_is_used(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=%zz")
    header = lines_of(configure())[0]
    assert "a" not in header["resource"]
    assert 'OTEL_RESOURCE_ATTRIBUTES: "b=%zz" is not percent-encoded' in capfd.readouterr().err


@pytest.mark.parametrize(
    ("resource", "value"), [({"a b": "1"}, "a b"), ({"a": ""}, "''"), ({"a": "x" * 513}, "xxx"), ("a=1\na=2", "a=1")]
)
def test_an_attribute_that_cannot_be_is_refused_by_parameter_and_value(resource: Any, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(resource=resource)
    assert str(refused.value).count("resource=") == 1
    assert value in str(refused.value)


def test_more_attributes_than_there_may_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="resource: has 65 attributes, must be at most 64"):
        Config(resource={f"a{number}": "1" for number in range(65)})


def test_tail_query_stats_and_verify_read_segments_with_the_resource(configure: Configure) -> None:
    config = configure(resource_on_lines="on", resource={"k8s.pod.name": "pod-7"})
    lines_of(config)
    directory = str(config.directory)
    assert json.loads(run("verify", directory, "--json").out)["problems"] == []
    assert [record["n"] for record in read_records(config.directory) if "n" in record] == [1]
    asked = "SELECT resource->>'k8s.pod.name' AS pod FROM records WHERE event_name = 'n'"
    assert json.loads(run("query", asked, directory, "--format", "json").out) == {"pod": "pod-7"}
    assert '"n":1' in run("tail", directory, "--no-follow", "--json").out or "n=1" in run("tail", directory).out


@pytest.mark.servers
def test_recover_writes_what_a_process_left_with_the_resource_of_its_own_configuration(
    configure: Configure, tmp_path: Path
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


OWN = [
    "segment.header",
    "segment.footer",
    "segment.repaired",
    "segment.kept",
    "segments.removed",
    "log.dropped",
    "process.ended",
    "control.changed",
    "sink.failed",
    "sink.recovered",
    "sink.fallback",
    "sink.dropped",
]
FRAMING: list[dict[str, Any]] = [
    {"n": 1, "processes": [{"boot_id": "00000000deadbeef", "dropped": {"queue_full": {"INFO": 7}}}]},
    {"n": 2, "segment": 1, "records": 9},
]


def forged(event: str, second: float, **fields: Any) -> dict[str, Any]:
    """Return a record of an application that named its event like this."""
    return {**log(second), "event_name": event, **fields}


@pytest.mark.parametrize("lane", ["fast", "audit"])
@pytest.mark.parametrize("name", OWN)
def test_an_event_named_like_the_listeners_own_is_refused_by_name(configure: Configure, name: str, lane: Any) -> None:
    config = configure(audit="on")
    with Logger(config) as logger:
        for fields in (["n"], ["dropped", "reasons", "lost"], []):
            with pytest.raises(ValueError, match=f'event "{name}" is the listener\'s own'):
                logger.event(name, fields, lane=lane)
        assert logger.event("segment.footers", ["n"], lane=lane)(1)


def records() -> list[dict[str, Any]]:
    """Return records of which some are named like framing and like what a listener reports."""
    names = ["segment.header", "segment.footer", "process.ended", "log.dropped"]
    return [*(forged(name, number + 1, **FRAMING[number % 2]) for number, name in enumerate(names)), log(9, n=4)]


def test_a_record_named_like_framing_is_read_followed_shipped_counted_and_queried(tmp_path: Path) -> None:
    write_segment(tmp_path, records())
    assert [record["n"] for record in read_records(tmp_path)] == [1, 2, 1, 2, 4]
    assert [record["n"] for record in until_set(tmp_path, begin="start")] == [1, 2, 1, 2, 4]
    with source(tmp_path) as opened:
        assert ship(opened) == [1, 2, 1, 2, 4]
    stats = json.loads(run("stats", str(tmp_path), "--json").out)
    assert stats["dropped"] == []
    done = run("query", "SELECT count(*) AS n FROM records", str(tmp_path), "--format", "json")
    assert json.loads(done.out) == {"n": 5}


def test_a_live_segment_with_a_record_named_like_a_footer_goes_on_for_who_follows_and_ships_it(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [forged("segment.footer", 1, n=0)], sealed=False)
    writer = Writer(path)
    followed = until_set(tmp_path, writer.append(orjson.dumps(log(2, n=1)) + b"\n"), lambda: None)
    assert [record["n"] for record in followed] == [1], "it does not pass for sealed"
    with source(tmp_path) as opened:
        assert ship(opened) == [0, 1]
        writer.append(orjson.dumps(log(3, n=2)) + b"\n")()
        assert ship(opened) == [2]
    writer.die()


def test_verification_does_not_take_an_applications_record_for_the_listeners(tmp_path: Path) -> None:
    names = ["segment.footer", "segment.header", "process.ended", "log.dropped", "sink.fallback"]
    made = [forged(name, 1, seq=number, n=number) for number, name in enumerate(names)]
    write_segment(tmp_path, [*made, {**log(3), "seq": 5}], sealed=False)
    report = json.loads(run("verify", str(tmp_path), "--json").out)
    assert [problem["kind"] for problem in report["problems"]] == ["end_unknown"]
    assert report["totals"]["written"] == 6
