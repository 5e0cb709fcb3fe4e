"""The chart of the webhook, and its program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "webhook"


def program() -> Path:
    """Build the program without optimisation, and return its path; skip the test where there is no cargo."""
    cargo = shutil.which("cargo", path=f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}")
    if cargo is None:
        pytest.skip("missing: cargo, for the program of the webhook")
    command = [cargo, "build", "--quiet", "--package", "inference_logging_webhook"]
    subprocess.run(command, cwd=ROOT / "native", check=True)
    return ROOT / "native" / "target" / "debug" / "inference-logging-webhook"
