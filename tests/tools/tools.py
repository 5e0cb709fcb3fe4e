"""Foreign tools for tests: where each one is, or why the test that needs it is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.programs.workshop import TOOLS, pins, result


def tool(name: str) -> Path:
    """Return the path of a tool of `pins.yaml`: a binary, or a directory; skip the test, and say why, without it."""
    missing = TOOLS / f"{name}.missing"
    if missing.exists():
        pytest.skip(f"missing: {name}: {missing.read_text(encoding='utf-8').strip()}")
    if not (TOOLS / f"{name}.stamp").exists():
        pytest.skip(f"no {name} in {TOOLS.name}: `python tools/programs/install.py {name}` gets it")
    return result(name, pins()[name])
