"""The C++ headers, the logger for TensorRT, and the example with a real ONNX Runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.books import assert_books_balance, variables
from tests.kit.c_programs import LIBRARY, SOURCES, STRICT, compiled, run
from tests.kit.signatures import Configure
from tests.kit.support import read_records
from tests.tools.tools import tool

CPP = ("g++", "-std=c++17", "-D_GNU_SOURCE")
DEFINITION = """
#include <inferlog.hpp>
INFERLOG_EVENT(sample, "sample", {fields});
bool emit(const sample& event) {{ return event.emit(inferlog::info{values}); }}
sample registered(const inferlog::log& log) {{ return sample(log); }}
"""
TWO = 'inferlog::field<double>{"seconds"}, inferlog::field<std::uint64_t>{"tokens"}'
REFUSED = {
    "too few values": (TWO, ", 1.0", "one value for each field"),
    "a number for a text": ('inferlog::field<std::string_view>{"name"}', ", 1.0", "not of its field's type"),
    "a sign is lost": (TWO, ", 1.0, 5", "not of its field's type"),
    "an int for a float": (TWO, ", 1, 5u", "not of its field's type"),
    "two fields of one name": (
        'inferlog::field<double>{"a"}, inferlog::field<double>{"a"}',
        ", 1.0, 1.0",
        "a name of its own",
    ),
    "a field without a name": ('inferlog::field<double>{""}', ", 1.0", "a name of its own"),
}


@pytest.fixture(scope="module")
def program(installed: Path) -> Path:
    """Return the program, with spdlog if it is installed."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    if not has_spdlog():
        return compiled(installed, "program.cpp", *CPP, *STRICT)
    options = ("-DWITH_SPDLOG", "-DSPDLOG_FMT_EXTERNAL", "-DSPDLOG_COMPILED_LIB")
    return compiled(installed, "program.cpp", *CPP, *STRICT, *options, more=("-lspdlog", "-lfmt"))


def has_spdlog() -> bool:
    """Return whether the compiler finds spdlog."""
    asked = subprocess.run(
        [*CPP, "-fsyntax-only", "-x", "c++", "-include", "spdlog/spdlog.h", "/dev/null"], check=False
    )
    return asked.returncode == 0


@pytest.mark.servers
def test_an_event_has_the_types_of_its_fields(program: Path, configure: Configure) -> None:
    config = configure()
    run(program, "events", config)
    first, second = read_records(config.directory, "cpp.inference")
    names = ("model", "latency_ms", "tokens", "delta", "ok", "error")
    assert [first.get(name) for name in names] == ["resnet50", 4.25, 7, -1, True, None]
    assert "error" not in first
    assert [second.get(name) for name in names] == ["long", 0.5, 2**63, 2, False, "late"]
    (message,) = read_records(config.directory, "log")
    assert (message["logger"], message["message"]) == ("pipeline", "loaded")
    assert_books_balance(config)


@pytest.mark.servers
def test_a_request_that_is_given_up_has_failed(program: Path, configure: Configure) -> None:
    config = configure()
    run(program, "requests", config)
    records = {record["url.path"]: record for record in read_records(config.directory, "request")}
    assert {path: record["outcome"] for path, record in records.items()} == {"/done": "ok", "/abandoned": "error"}
    assert records["/abandoned"]["error.type"] == "abandoned"
    assert_books_balance(config)


@pytest.mark.servers
def test_what_cannot_be_opened_is_an_exception(program: Path) -> None:
    said = subprocess.run([program, "wrong", '{"wrong": 1}'], capture_output=True, text=True, timeout=180, check=True)
    assert said.stdout.startswith("wrong")


@pytest.mark.servers
def test_messages_of_spdlog_are_those_of_a_logger(program: Path, configure: Configure) -> None:
    if not has_spdlog():
        pytest.skip("needs libspdlog-dev")
    config = configure()
    run(program, "spdlogs", config)
    first, quoted, *threads, last = read_records(config.directory, "log")
    assert {record["logger"] for record in (first, quoted, *threads, last)} == {"pipeline"}
    assert (first["message"], first["severity_text"]) == ("loaded resnet50 in 12 ms", "INFO")
    assert first["attributes"]["code.file.path"].endswith("program.cpp")
    assert first["attributes"]["code.function.name"] == "spdlogs"
    assert first["attributes"]["code.line.number"] > 0
    assert (quoted["message"], quoted["severity_text"]) == ('a "quoted"\nend', "FATAL")
    assert "code.file.path" not in quoted["attributes"]
    expected = Counter(f"{thread} {number}" for thread in range(4) for number in range(1000))
    assert Counter(record["message"] for record in threads) == expected
    assert len({record["attributes"]["thread.id"] for record in threads}) == 4
    assert (last["message"], last["severity_text"]) == ("<error> last", "ERROR")
    assert_books_balance(config)


@pytest.mark.servers
@pytest.mark.parametrize(("fields", "values", "why"), REFUSED.values(), ids=REFUSED)
def test_the_compiler_refuses(installed: Path, fields: str, values: str, why: str) -> None:
    ended = check(installed, fields, values)
    assert ended.returncode != 0
    assert why in ended.stderr


@pytest.mark.servers
def test_the_compiler_accepts_what_fits(installed: Path) -> None:
    ended = check(installed, TWO, ", 1.0f, 5u")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.servers
@pytest.mark.parametrize("number", [0, 1])
def test_the_documented_programs_compile(installed: Path, number: int) -> None:
    if shutil.which("g++") is None or not has_spdlog():
        pytest.skip("needs g++ and libspdlog-dev")
    source = (LIBRARY.parent.parent / "docs" / "c.md").read_text().split("```cpp\n")[1 + number].split("```")[0]
    line = [*CPP, *STRICT, "-fsyntax-only", f"-I{installed}/include", "-x", "c++", "-"]
    subprocess.run(line, input=source, text=True, check=True)


def check(installed: Path, fields: str, values: str) -> subprocess.CompletedProcess[str]:
    """Compile an event and a call."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    source = DEFINITION.format(fields=fields, values=values)
    line = [*CPP, "-fsyntax-only", f"-I{installed}/include", "-x", "c++", "-"]
    return subprocess.run(line, input=source, capture_output=True, text=True, check=False)


SEVERITIES = {"severity 0": "FATAL", "severity 1": "ERROR", "severity 2": "WARN", "severity 3": "INFO"}


@pytest.fixture(scope="module")
def tensorrt(installed: Path) -> Path:
    """Return the program."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return compiled(installed, "tensorrt.cpp", "g++", "-std=c++17", *STRICT, f"-I{SOURCES / 'tensorrt_stub'}")


@pytest.mark.servers
@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_each_severity_of_tensorrt_has_one_of_ours(tensorrt: Path, configure: Configure, level: str) -> None:
    config = configure(level=level)
    run(tensorrt, "severities", config)
    *messages, named = read_records(config.directory, "log")
    expected = SEVERITIES | ({"severity 4": "DEBUG"} if level == "DEBUG" else {})
    assert {record["message"]: record["severity_text"] for record in messages} == expected
    assert {record["logger"] for record in messages} == {"tensorrt"}
    assert (named["logger"], named["message"]) == ("engine", "")
    assert_books_balance(config)


@pytest.mark.servers
def test_threads_of_tensorrt_lose_nothing(tensorrt: Path, configure: Configure) -> None:
    config = configure(queue_bytes="4MiB")
    run(tensorrt, "threads", config)
    found = Counter(record["message"] for record in read_records(config.directory, "log"))
    assert found == Counter(f"{thread} {number}" for thread in range(4) for number in range(1000))
    assert_books_balance(config)


@pytest.mark.servers
def test_the_documented_lines_compile(installed: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    (source,) = [
        block.split("```")[0]
        for block in (LIBRARY.parent.parent / "docs" / "c.md").read_text().split("```cpp\n")[1:]
        if "tensorrt_logger.hpp" in block.split("```")[0]
    ]
    includes = [f"-I{installed}/include", f"-I{SOURCES / 'tensorrt_stub'}"]
    line = ["g++", "-std=c++17", *STRICT, "-fsyntax-only", *includes, "-x", "c++", "-"]
    subprocess.run(line, input=source, text=True, check=True)


EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp_onnx_pipeline"
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


@pytest.mark.onnx
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


@pytest.mark.onnx
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


@pytest.mark.onnx
def test_the_level_leaves_messages_of_onnx_runtime_out(pipeline: Path, model: Path, configure: Configure) -> None:
    config = configure(level="ERROR")
    subprocess.run([pipeline, model, "1"], env=os.environ | variables(config), timeout=180, check=True)
    assert [record["severity_text"] for record in read_records(config.directory, "log")] == ["ERROR"]
    assert_books_balance(config)


@pytest.mark.onnx
def test_a_model_that_cannot_be_loaded_is_reported(pipeline: Path, tmp_path: Path, configure: Configure) -> None:
    environment = os.environ | variables(configure())
    ended = subprocess.run(
        [pipeline, tmp_path / "absent.onnx"], env=environment, timeout=180, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "absent.onnx" in ended.stderr


@pytest.mark.onnx
def test_the_documented_lines_of_the_example_compile(installed: Path) -> None:
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
