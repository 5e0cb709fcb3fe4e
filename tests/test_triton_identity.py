"""Whose request a model of Triton serves, and what its instance says at its start; without a Triton."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, current_request
from inference_logging.record.integrations.triton.started import reported_by
from inference_logging.triton import log_requests
from tests.fake_triton import arguments, ok, request
from tests.identity import HEADERS, SECRET, everything
from tests.support import Recorded, read_records
from tests.test_processes import in_child

pytestmark = pytest.mark.usefixtures("fake_backend")
Configure = Callable[..., Config]
Serve = Callable[..., tuple[Any, Recorded]]


def test_forwarded_headers_are_recorded_as_headers_are(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    model, recorded = serve(
        lambda self, requests: [ok() for _ in requests],
        record_headers=",".join(HEADERS),
        capture_hash_key_file=tmp_path / "key",
    )
    forwarded = {"x-tenant": "acme", "X-Team": "search", "authorization": f"Bearer {SECRET}", "x-other": "no", "n": 7}
    model.execute([request(**forwarded), request()])
    first, second = recorded.records("request")
    assert (first["tenant.id"], first["http.request.header.x-team"]) == ("acme", "search")
    assert first["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in first)
    assert "tenant.id" not in second
    assert SECRET.encode() not in everything(recorded.config.directory)


def test_what_the_model_sets_and_keeps_is_in_the_record(serve: Serve) -> None:
    kept: list[Any] = []

    def execute(_self: Any, requests: list[Any]) -> list[Any]:
        current = current_request()
        assert current is not None
        assert current.set(**{"tenant.id": "of the model"}, room=7)
        current.keep()
        kept.append(current)
        return [ok() for _ in requests]

    model, recorded = serve(execute, record_headers="x-tenant=tenant.id", sample_ratio=0.0)
    model.execute([request(**{"x-tenant": "acme"})])
    record = recorded.request()
    assert (record["tenant.id"], record["attributes"]) == ("of the model", {"room": 7})
    assert record["sampled_by"] == "forced"
    assert kept[0].set(late=1) is False


def test_the_record_of_a_killed_instance_says_whose_request_it_was(configure: Configure) -> None:
    config = configure(record_headers=["x-tenant=tenant.id"])

    class Model:
        def execute(self, _requests: list[Any]) -> list[Any]:
            os.kill(os.getpid(), signal.SIGKILL)
            return []

    def child() -> None:
        os.environ["INFERENCE_LOGGING_DIRECTORY"] = str(config.directory)
        os.environ["INFERENCE_LOGGING_QUEUE_DIRECTORY"] = str(config.queue_directory)
        os.environ["INFERENCE_LOGGING_RECORD_HEADERS"] = "x-tenant=tenant.id"
        model: Any = log_requests(Model)()
        model.initialize(arguments())
        model.execute([request(name="r-1", **{"x-tenant": "acme"})])

    os.waitpid(in_child(child), 0)
    with Logger(config) as logger:
        assert logger.flush()
    (record,) = read_records(config.directory, "request")
    assert (record["outcome"], record["client_request_id"], record["tenant.id"]) == ("process_died", "r-1", "acme")
    assert record["triton.model_name"] == "m"


ARGS = {"model_name": "m", "model_version": "3", "model_instance_kind": "GPU", "model_instance_device_id": "1"}
MODEL = {
    "backend": "python",
    "max_batch_size": 8,
    "instance_group": [{"count": 2, "kind": "KIND_GPU"}, {"kind": "KIND_CPU"}],
    "model_transaction_policy": {"decoupled": True},
    "dynamic_batching": {},
    "parameters": {"password": {"string_value": "canary-parameter"}},
}


def test_a_model_and_its_server_are_described_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_SERVER_VERSION", "2.51.0")
    flags = ["tritonserver", "--model-repository=/canary-path", "--exit-timeout-secs=9", "--rate-limit", "off"]
    flags += ["--strict-readiness", "--backend-config=python,key=canary-flag", "--cache-config", "local,size=canary"]
    command_line = tmp_path / "cmdline"
    command_line.write_bytes(b"".join(flag.encode() + b"\0" for flag in flags))
    reported = reported_by(ARGS, MODEL, command_line)
    assert reported["engine.version"] == "2.51.0"
    assert (reported["model.name"], reported["model.version"]) == ("m", "3")
    assert reported["engine.parallelism"] == {"instances": 3}
    assert reported["engine.arguments"] == {
        "model_config.backend": "python",
        "model_config.max_batch_size": 8,
        "model_config.decoupled": True,
        "model_config.dynamic_batching": True,
        "model_config.sequence_batching": False,
        "model_instance_kind": "GPU",
        "model_instance_device_id": "1",
        "server.exit-timeout-secs": "9",
        "server.rate-limit": "off",
        "server.strict-readiness": "true",
    }
    assert "canary" not in json.dumps(reported)


def test_what_a_server_does_not_say_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_SERVER_VERSION", "NVIDIA_TRITON_SERVER_VERSION"):
        monkeypatch.delenv(name, raising=False)
    reported = reported_by({"model_name": "m", "model_version": "1"}, {}, tmp_path / "missing")
    assert reported == {
        "engine.name": "triton",
        "model.name": "m",
        "model.version": "1",
        "engine.arguments": {
            "model_config.decoupled": False,
            "model_config.dynamic_batching": False,
            "model_config.sequence_batching": False,
        },
    }
