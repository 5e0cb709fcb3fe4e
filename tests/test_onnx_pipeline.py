"""The example with a real ONNX Runtime: each inference is on record, and so is ONNX Runtime's own log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance, variables
from tests.c_programs import LIBRARY, STRICT
from tests.support import read_records
from tests.tools.tools import tool

pytestmark = pytest.mark.onnx

Configure = Callable[..., Config]
EXAMPLE = Path(__file__).parent.parent / "examples" / "cpp_onnx_pipeline"
COUNT = 20


@pytest.fixture(scope="module")
def pipeline(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example with CMake."""
    onnxruntime = tool("onnxruntime")
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    built = tmp_path_factory.mktemp("onnx_pipeline")
    prefixes = f"-DCMAKE_PREFIX_PATH={installed};{onnxruntime}"
    subprocess.run(["cmake", "-S", EXAMPLE, "-B", built, prefixes], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", built], check=True, capture_output=True)
    return built / "pipeline"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the model."""
    path = tmp_path_factory.mktemp("model") / "digits.onnx"
    subprocess.run([sys.executable, EXAMPLE / "model.py", path], check=True)
    assert path.stat().st_size < 10_000
    return path


def test_each_inference_is_on_record(pipeline: Path, model: Path, configure: Configure) -> None:
    config = configure()
    ended = subprocess.run(
        [pipeline, model, str(COUNT)], env=os.environ | variables(config), timeout=180, check=True, capture_output=True
    )
    assert b"refused: INVALID_ARGUMENT" in ended.stdout
    *inferences, refused = read_records(config.directory, "request")
    assert len(inferences) == COUNT
    image = {"name": "image", "datatype": "FP32", "shape": [1, 64], "bytes": 256}
    probabilities = {"name": "probabilities", "datatype": "FP32", "shape": [1, 10], "bytes": 40}
    expected = {
        "outcome": "ok",
        "triton.model_name": "digits",
        "triton.model_version": "3",
        "triton.model_instance_name": "cpu",
        "triton.inputs": [image],
        "triton.outputs": [probabilities],
    }
    for record in inferences:
        assert {name: record.get(name) for name in expected} == expected
        assert record["duration_s"] > 0
    assert (refused["outcome"], refused["error.type"]) == ("error", "INVALID_ARGUMENT")
    assert refused["triton.inputs"] == [image | {"shape": [1, 32], "bytes": 128}]
    assert "triton.outputs" not in refused
    found = read_records(config.directory, "pipeline.classified")
    assert [record["request_id"] for record in found] == [record["request_id"] for record in inferences]
    assert all(0 <= record["class"] < 10 and 0.1 <= record["probability"] <= 1 for record in found)
    assert all(0 < record["run_s"] <= one["duration_s"] for record, one in zip(found, inferences, strict=True))
    assert_books_balance(config)


def test_the_log_of_onnx_runtime_has_its_severities(pipeline: Path, model: Path, configure: Configure) -> None:
    config = configure()
    subprocess.run([pipeline, model, "1"], env=os.environ | variables(config), timeout=180, check=True)
    messages = read_records(config.directory, "log")
    assert {record["logger"] for record in messages} == {"onnxruntime"}
    by_severity = {
        severity: [record for record in messages if record["severity_text"] == severity]
        for severity in ("INFO", "WARN", "ERROR")
    }
    assert any("Session successfully initialized" in record["message"] for record in by_severity["INFO"])
    (warning,) = [record for record in by_severity["WARN"] if "'forgotten'" in record["message"]]
    attributes = warning["attributes"]
    assert attributes["code.file.path"].endswith("graph.cc")
    assert attributes["code.line.number"] > 0
    assert "Initializers" in attributes["code.function.name"]
    assert attributes["onnxruntime.category"] == "onnxruntime"
    (error,) = by_severity["ERROR"]
    assert "Dimension mismatch" in error["message"]
    assert_books_balance(config)


def test_the_level_leaves_messages_of_onnx_runtime_out(pipeline: Path, model: Path, configure: Configure) -> None:
    config = configure(level="ERROR")
    subprocess.run([pipeline, model, "1"], env=os.environ | variables(config), timeout=180, check=True)
    assert [record["severity_text"] for record in read_records(config.directory, "log")] == ["ERROR"]
    assert_books_balance(config)


def test_a_model_that_cannot_be_loaded_is_reported(pipeline: Path, tmp_path: Path, configure: Configure) -> None:
    environment = os.environ | variables(configure())
    ended = subprocess.run(
        [pipeline, tmp_path / "absent.onnx"], env=environment, timeout=180, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "absent.onnx" in ended.stderr


def test_the_documented_lines_compile(installed: Path) -> None:
    include = str(tool("onnxruntime") / "include")
    (source,) = [
        block.split("```")[0]
        for block in (LIBRARY.parent.parent / "docs" / "c.md").read_text().split("```cpp\n")[1:]
        if "onnxruntime_logger.hpp" in block.split("```")[0]
    ]
    line = [
        "g++",
        "-std=c++17",
        *STRICT,
        "-fsyntax-only",
        f"-I{installed}/include",
        "-isystem",
        include,
        "-x",
        "c++",
        "-",
    ]
    subprocess.run(line, input=source, text=True, check=True)
