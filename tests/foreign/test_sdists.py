"""Tests of starlette, uvicorn and CPython's logging pass around ours, and each request is recorded."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.sdist import Run, run
from tests.kit.support import read_records

pytestmark = pytest.mark.foreign

STARLETTE = ["tests", "--ignore=tests/test_config.py"]
UVICORN = [
    "tests/protocols/test_http.py",
    "tests/protocols/test_http2.py",
    "tests/test_default_headers.py",
    "tests/test_lifespan.py",
    "tests/test_server.py",
]
UVICORN_SLOW = ["tests/protocols/test_websocket.py"]
# Tests that pass only without us, with the reason why that is as it should be.
_SERVED_HERE = "an application that raises before it receives anything is served a lifespan, to drain at its end"
_OUR_VARIABLE = "asserts that the context is empty, and ours holds the request's ids"
ALLOWED = {
    "tests/test_testclient.py::test_exception_in_middleware[asyncio]": _SERVED_HERE,
    "tests/test_testclient.py::test_exception_in_middleware[trio]": _SERVED_HERE,
    "tests/test_lifespan.py::test_lifespan_auto_with_error": _SERVED_HERE,
    "tests/test_lifespan.py::test_lifespan_on_with_error": _SERVED_HERE,
    "tests/test_server.py::test_reset_contextvars_asyncio[h11]": _OUR_VARIABLE,
    "tests/test_server.py::test_reset_contextvars_asyncio[httptools]": _OUR_VARIABLE,
    "tests/test_server.py::test_reset_contextvars_asyncio[zttp]": _OUR_VARIABLE,
}


def is_passed(outcome: str | None) -> bool:
    return outcome is not None and outcome.startswith(("passed", "skipped", "xfailed"))


def recorded(project: str, selection: list[str], path: Path) -> Run:
    """Run tests behind our middleware; check that they end as without it, and that each request is on record."""
    for name in ("ours", "plain", "again"):
        (path / name).mkdir()
    ours = run(project, selection, path / "ours")
    failed = [name for name, outcome in ours.outcomes.items() if not is_passed(outcome) and name not in ALLOWED]
    if failed:
        # Some of them go by the clock.
        plain, again = run(project, failed, path / "plain", wrap="no"), run(project, failed, path / "again")
        outcomes = {name: (plain.outcomes.get(name), again.outcomes.get(name)) for name in failed}
        found = {name: both for name, both in outcomes.items() if is_passed(both[0]) and not is_passed(both[1])}
        assert not found, f"{found}\n{ours.output[-20_000:]}"
    ids = Counter(record["request_id"] for record in read_records(path / "ours" / "segments", "request"))
    assert ids == Counter(ours.request_ids)
    assert len(ours.request_ids) == ours.requests_entered
    return ours


def test_starlettes_own_tests_end_the_same_behind_our_middleware(tmp_path: Path) -> None:
    ours = recorded("starlette", STARLETTE, tmp_path)
    assert sum(outcome == "passed" for outcome in ours.outcomes.values()) > 500
    assert ours.requests_entered > 500


def test_uvicorns_own_tests_end_the_same_behind_our_middleware(tmp_path: Path) -> None:
    selection = UVICORN + (UVICORN_SLOW if os.environ.get("FOREIGN_TESTS") == "all" else [])
    ours = recorded("uvicorn", selection, tmp_path)
    assert sum(outcome == "passed" for outcome in ours.outcomes.values()) > 100
    assert ours.requests_entered > 100


HERE = Path(__file__).parent
_PATIENCE_S = 420
# Tests that pass only without us, with the reason why that is as it should be. There is none: our handler, which the
# tests' own beginning does not allow at the root, is taken away before they run.
DIFFERENT: dict[str, str] = {}


def outcomes(path: Path, wanted: str, *names: str) -> dict[str, Any]:
    """Run the tests, or those named, in a process of their own."""
    path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", str(HERE / "logging_outcomes.py"), wanted, str(path), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=path)
    assert ended.returncode == 0, ended.stderr[-5000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(
    importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_logging") is None,
    reason="this interpreter has no `test.test_logging`: its distribution leaves CPython's own tests out",
)
def test_the_interpreters_own_tests_of_logging_end_as_without_us(tmp_path: Path) -> None:
    ours = outcomes(tmp_path / "ours", "yes")
    assert ours["classes"] == ["NativeLogger", "NativeRootLogger"]
    assert len(ours["outcomes"]) > 150
    failed = [name for name, outcome in ours["outcomes"].items() if not is_passed(outcome) and name not in DIFFERENT]
    if failed:
        # Some go by the clock, and some fail without us.
        plain = outcomes(tmp_path / "plain", "no", *failed)["outcomes"]
        again = outcomes(tmp_path / "again", "yes", *failed)["outcomes"]
        assert {
            name: again.get(name) for name in failed if is_passed(plain.get(name)) and not is_passed(again.get(name))
        } == {}
