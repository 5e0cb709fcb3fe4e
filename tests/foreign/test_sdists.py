"""Starlette's and uvicorn's own tests pass with our middleware around every application, and each request is recorded.

``FOREIGN_TESTS=all`` runs also the slow ones (uvicorn's WebSocket tests wait a lot).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.foreign.sdist import Run, run_both
from tests.support import read_records

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


def different(ours: Run, plain: Run) -> dict[str, str]:
    """Return what ends otherwise with us and is not allowed to, by name."""
    assert plain.outcomes, plain.output
    return {
        name: f"{plain.outcomes.get(name)} without us, {ours.outcomes.get(name)} with us"
        for name in plain.outcomes.keys() | ours.outcomes.keys()
        if plain.outcomes.get(name) != ours.outcomes.get(name) and name not in ALLOWED
    }


def assert_same_outcomes(project: str, ours: Run, plain: Run, path: Path) -> None:
    """Check that each test ends as without us. What does not is run again: some of them go by the clock."""
    if found := different(ours, plain):
        path.mkdir()
        again = different(*run_both(project, sorted(found), path))
        reported = "\n".join(f"{name}: {outcomes}" for name, outcomes in sorted(again.items()))
        assert not again, f"{reported}\n{ours.output[-20_000:]}"


def assert_each_request_has_one_record(ours: Run, directory: Path) -> None:
    """Check that what entered the middleware is what is recorded, by our request id."""
    recorded = Counter(record["request_id"] for record in read_records(directory, "request"))
    assert recorded == Counter(ours.request_ids)
    assert len(ours.request_ids) == ours.requests_entered


def test_starlettes_own_tests_end_the_same_behind_our_middleware(tmp_path: Path) -> None:
    ours, plain = run_both("starlette", STARLETTE, tmp_path)
    assert_same_outcomes("starlette", ours, plain, tmp_path / "again")
    assert_each_request_has_one_record(ours, tmp_path / "yes" / "segments")
    assert sum(outcome == "passed" for outcome in ours.outcomes.values()) > 500
    assert ours.requests_entered > 500


def test_uvicorns_own_tests_end_the_same_behind_our_middleware(tmp_path: Path) -> None:
    selection = UVICORN + (UVICORN_SLOW if os.environ.get("FOREIGN_TESTS") == "all" else [])
    ours, plain = run_both("uvicorn", selection, tmp_path)
    assert_same_outcomes("uvicorn", ours, plain, tmp_path / "again")
    assert_each_request_has_one_record(ours, tmp_path / "yes" / "segments")
    assert sum(outcome == "passed" for outcome in ours.outcomes.values()) > 100
    assert ours.requests_entered > 100
