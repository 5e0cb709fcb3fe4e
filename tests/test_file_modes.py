"""What is made of records is for its owner alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inference_logging.shipping.database import DatabaseDestination
from tests.command_line import run
from tests.segment_files import request, write_segment


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_database_that_is_shipped_to_is_its_owners_alone(tmp_path: Path) -> None:
    with closing(DatabaseDestination(tmp_path / "records.db", timeout_s=1.0)):
        made = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert set(made.values()) == {0o600}
    assert "records.db" in made


def test_a_page_of_stats_is_its_owners_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(0)])
    done = run("stats", str(tmp_path), "--html", str(tmp_path / "page.html"))
    assert done.code == 0, done.err
    assert mode(tmp_path / "page.html") == 0o600
