"""The half of the core that the tests run with: of Linux, or the portable one that macOS has (`make test-portable`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.c_programs import PLATFORM


def test_the_module_and_the_program_are_of_the_half_that_is_to_be_tested(listener_binary: Path) -> None:
    # In a process of its own: what tests start must have it, too.
    module = [sys.executable, "-c", "from inference_logging import _native; print(_native.platform)"]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == f"{PLATFORM}\n"
    shown = subprocess.run([listener_binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("(portable)") == (PLATFORM == "portable")
