"""The public API is typed: a strict checker accepts a program that uses every public name, and refuses wrong uses."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONSUMER = Path(__file__).with_name("typed_consumer.py")
WRONG = """
Config().queue_bites
Logger(directory="logs")
Logger().event("step", "n", severity=3)
get_logger(1)
current_request().trace_id
InferenceLoggingMiddleware()
segments(1)
read_records("logs", on_corrupt=len("x"))
follow_records("logs", begin="middle")
capture_records().requests
Change("grown", segments("logs")[0])
"""


def strict(path: Path) -> list[str]:
    """Return what a user's ``mypy --strict`` says, without this project's own configuration."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context"]
    command += ["--python-version=3.11", f"--cache-dir={ROOT / '.mypy_cache' / 'consumer'}", path.name]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def test_a_strict_checker_accepts_every_use_and_refuses_every_wrong_one(tmp_path: Path) -> None:
    text = CONSUMER.read_text()
    program = tmp_path / "program.py"
    program.write_text(text + WRONG)
    found = {int(line.split(":")[1]): line for line in strict(program)}
    last = len(text.splitlines())
    assert [line for number, line in found.items() if number <= last] == []
    wrong = range(last + 2, last + 1 + len(WRONG.splitlines()))
    assert sorted(found) == list(wrong), "a wrong use was accepted"


@pytest.mark.parametrize(
    "module",
    # inference_logging.triton is left out: what it imports is there in Triton's own processes only.
    [
        "inference_logging",
        "inference_logging.metrics",
        "inference_logging.parsl",
        "inference_logging.pytest_plugin",
        "inference_logging.segments",
        "inference_logging.testing",
    ],
)
def test_the_program_uses_every_public_name(module: str) -> None:
    tree = ast.parse(CONSUMER.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module]
    imported = {alias.name for node in imports for alias in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported == set(importlib.import_module(module).__all__)
    assert imported <= used
