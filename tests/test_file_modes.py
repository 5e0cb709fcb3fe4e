"""What is made of records is for its owner alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_a_page_of_stats_is_its_owners_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(0)])
    done = run("stats", str(tmp_path), "--html", str(tmp_path / "page.html"))
    assert done.code == 0, done.err
    assert mode(tmp_path / "page.html") == 0o600


@pytest.mark.parametrize("form", ["openai-jsonl", "parquet"])
def test_an_export_and_its_statement_are_their_owners_alone_also_where_another_stood(tmp_path: Path, form: str) -> None:
    write_segment(tmp_path, [request(0)])
    made, other = tmp_path / "made", tmp_path / "other"
    made.write_text("an earlier one, for all")
    other.write_text("")
    made.with_name("made.partial").symlink_to(other)
    done = run(
        "export", str(tmp_path), "--format", form, "-o", str(made), "--statement", str(tmp_path / "statement.json")
    )
    assert done.code == 0, done.err
    assert (mode(made), mode(tmp_path / "statement.json")) == (0o600, 0o600)
    assert other.read_text() == ""
