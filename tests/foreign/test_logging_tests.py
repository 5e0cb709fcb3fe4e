"""CPython's own tests of ``logging`` pass with our class of loggers installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.foreign

HERE = Path(__file__).parent
_PATIENCE_S = 420

# Tests that pass only without us, with the reason why that is as it should be. There is none: our handler, which the
# tests' own beginning does not allow at the root, is taken away before they run.
ALLOWED: dict[str, str] = {}


def outcomes(path: Path, wanted: str, *names: str) -> dict[str, Any]:
    """Run the tests, or those named, in a process of their own."""
    path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", str(HERE / "logging_outcomes.py"), wanted, str(path), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=path)
    assert ended.returncode == 0, ended.stderr[-5000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def is_passed(outcome: str | None) -> bool:
    return outcome in ("passed", "skipped")


@pytest.mark.skipif(
    importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_logging") is None,
    reason="this interpreter has no `test.test_logging`: its distribution leaves CPython's own tests out",
)
def test_the_interpreters_own_tests_of_logging_end_as_without_us(tmp_path: Path) -> None:
    ours = outcomes(tmp_path / "ours", "yes")
    assert ours["classes"] == ["NativeLogger", "NativeRootLogger"]
    assert len(ours["outcomes"]) > 150
    failed = [name for name, outcome in ours["outcomes"].items() if not is_passed(outcome) and name not in ALLOWED]
    if failed:
        # Some go by the clock, and some fail without us.
        plain = outcomes(tmp_path / "plain", "no", *failed)["outcomes"]
        again = outcomes(tmp_path / "again", "yes", *failed)["outcomes"]
        assert {
            name: again.get(name) for name in failed if is_passed(plain.get(name)) and not is_passed(again.get(name))
        } == {}
