"""A plugin of pytest: a test that fails after it has asked for a package that is not here is skipped, and says so.

It may ask in a process of its own, in a fixture, or where its file begins. Which packages those are: see lacking.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import lacking


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """Give each test a file for notes."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LACKING_NOTES"] = str(Path(folder, "notes"))
        try:
            return (yield)
        finally:
            del os.environ["LACKING_NOTES"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that failed for want of a package."""
    report = yield
    notes = Path(os.environ["LACKING_NOTES"])
    noted = notes.read_text(encoding="utf-8").split() if notes.exists() else []
    if report.failed and (needed := {*noted, *raised(call)}):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, said(needed))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that cannot be imported for want of a package."""
    report = yield
    if report.failed and (needed := raised(report.call)):
        report.outcome = "skipped"
        report.longrepr = (str(report.nodeid), 1, said(needed))
    return report


def raised(call: pytest.CallInfo[Any]) -> set[str]:
    """Return the packages whose want an error, or what it came from, speaks of."""
    found: set[str] = set()
    error = call.excinfo.value if call.excinfo else None
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            found.add(error.name.partition(".")[0])
        error = error.__cause__ or error.__context__
    return found & lacking.MODULES


def said(needed: set[str]) -> str:
    """Return what the summary says of a test."""
    return f"Skipped: needs {', '.join(sorted(needed))}"
