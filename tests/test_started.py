"""`server.started`: one record for each process that serves, with what it runs and nothing that is secret."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.record.integrations.vllm.started import reported_by
from inference_logging.record.started import FIELDS, configuration_digest, record_start
from tests.support import Client, read_lines, serve_one

Configure = Callable[..., Config]


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
