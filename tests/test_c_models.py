"""Requests of C programs that a model serves have the records of Triton's."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance
from tests.c_programs import STRICT_C, compiled, configuration_file, run
from tests.support import read_records

pytestmark = pytest.mark.servers

Configure = Callable[..., Config]
MODEL = {
    "triton.model_version": "7",
    "triton.model_instance_name": "session 0",
    "triton.batch_size": 4,
    "triton.batch_position": 3,
    "triton.correlation_id": "camera-2",
}
LONGEST_LIST = 1280
LONGEST_NAME = 96


@pytest.fixture(scope="module")
def program(installed: Path) -> Path:
    """Return the program."""
    return compiled(installed, "model.c", *STRICT_C)


def test_a_model_and_its_tensors_are_on_record(program: Path, configure: Configure) -> None:
    config = configure()
    run(program, "served", config)
    whole, stream, broken, failed = read_records(config.directory, "request")
    assert (whole["triton.model_name"], whole["outcome"], whole["client_request_id"]) == ("whole", "ok", "whole")
    assert {name: whole.get(name) for name in MODEL} == MODEL
    assert whole["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert whole["triton.inputs"] == [
        {"name": 'image "1"', "datatype": "FP32", "shape": [1, 64], "bytes": 256},
        {"name": "scale", "datatype": "FP64", "shape": [], "bytes": 8},
    ]
    assert whole["triton.outputs"] == [{"name": "class", "datatype": "INT64", "shape": [1], "bytes": 8}]
    assert not {"url.path", "http.request.method", "chunks"} & whole.keys()
    assert (stream["outcome"], stream["chunks"]) == ("ok", 2)
    assert (broken["outcome"], broken["error.type"]) == ("error", "response_incomplete")
    assert (failed["outcome"], failed["error.type"]) == ("error", "OUT_OF_MEMORY")
    assert failed["triton.model_name"] == "n" * LONGEST_NAME
    shown = failed["triton.inputs"]
    written = len(json.dumps(shown, separators=(",", ":")))
    assert written <= LONGEST_LIST + 1 < written + written / len(shown)
    assert_books_balance(config)


def test_an_inference_that_the_process_does_not_survive_names_its_model(program: Path, configure: Configure) -> None:
    config = configure()
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    ended = subprocess.run([program, "died", configuration], timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert_books_balance(config)
    (record,) = read_records(config.directory, "request")
    assert (record["outcome"], record["triton.model_name"]) == ("process_died", "dying")
    assert {name: record.get(name) for name in MODEL} == MODEL


def test_sanitizers_find_nothing(installed: Path, configure: Configure) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    config = configure()
    run(compiled(installed, "model.c", *STRICT_C, *flags), "served", config)
    assert_books_balance(config)
