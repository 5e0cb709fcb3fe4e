"""The books of an export without a process of its own: the same `verify`, many times as quick on a busy machine."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from inference_logging.read.export.statement import Books
from tests.command_line import run


@pytest.fixture
def verify_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` run in the test's process."""

    def look(arguments: Sequence[str]) -> Books:
        return Books(json.loads(run("verify", "--json", *arguments).out))

    monkeypatch.setattr(Books, "look", look)
