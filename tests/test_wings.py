"""The wings of the package: what a server runs imports nothing of what reads, ships or measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVER = """
import sys
from inference_logging import Handler, InferenceLoggingMiddleware, Logger, get_logger, install_logger
import inference_logging.loguru, inference_logging.metrics, inference_logging.parsl, inference_logging.structlog
import inference_logging.triton, inference_logging.record.run.servers, inference_logging.record.audit_sqlite
print(*sorted(name for name in sys.modules if name.startswith("inference_logging.")), sep="\\n")
"""


def test_no_wing_imports_one_above_it_and_no_files_form_a_circle() -> None:
    linter = pytest.importorskip("importlinter.cli", reason="import-linter needs Python 3.11")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_a_server_loads_nothing_of_another_wing() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "inference_logging.record.asgi.middleware" in loaded
    wings = ("read", "ship", "prove", "cli")
    assert [name for name in loaded if name.split(".")[1] in wings] == []
