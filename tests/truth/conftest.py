"""The table at the end: API × shape × ending, how many fields were compared and how many differed."""

from __future__ import annotations

import pytest

from tests.truth.table import PROPERTY, Comparison, table


@pytest.fixture
def comparison(request: pytest.FixtureRequest) -> Comparison:
    """Return what compares records with the truth."""
    return Comparison(request.node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if a test of this folder was run from here."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = [
        tuple(row)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == PROPERTY
        for row in value
    ]
    if rows:
        terminalreporter.section("records and truth")
        terminalreporter.write_line("\n".join(table(rows)))
