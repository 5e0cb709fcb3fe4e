"""The logger for TensorRT, against a stub of TensorRT's interface: the real one needs a GPU."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance
from tests.c_programs import LIBRARY, SOURCES, STRICT, compiled, run
from tests.support import read_records

pytestmark = pytest.mark.servers

Configure = Callable[..., Config]
SEVERITIES = {"severity 0": "FATAL", "severity 1": "ERROR", "severity 2": "WARN", "severity 3": "INFO"}


@pytest.fixture(scope="module")
def program(installed: Path) -> Path:
    """Return the program."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return compiled(installed, "tensorrt.cpp", "g++", "-std=c++17", *STRICT, f"-I{SOURCES / 'tensorrt_stub'}")


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_each_severity_of_tensorrt_has_one_of_ours(program: Path, configure: Configure, level: str) -> None:
    config = configure(level=level)
    run(program, "severities", config)
    *messages, named = read_records(config.directory, "log")
    expected = SEVERITIES | ({"severity 4": "DEBUG"} if level == "DEBUG" else {})
    assert {record["message"]: record["severity_text"] for record in messages} == expected
    assert {record["logger"] for record in messages} == {"tensorrt"}
    assert (named["logger"], named["message"]) == ("engine", "")
    assert_books_balance(config)


def test_threads_of_tensorrt_lose_nothing(program: Path, configure: Configure) -> None:
    config = configure(queue_bytes="4MiB")
    run(program, "threads", config)
    found = Counter(record["message"] for record in read_records(config.directory, "log"))
    assert found == Counter(f"{thread} {number}" for thread in range(4) for number in range(1000))
    assert_books_balance(config)


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
