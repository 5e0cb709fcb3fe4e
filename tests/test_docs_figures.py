"""A figure of speed, size or loss in a page is a kept result, or listed as a limit that the code has.

Kept results stand between the marks of `loadtests/results.py`, and on the page of the simulated fleet: test_results.py
and test_fleet_simulation.py compare them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.view import bench_view, bench_view_fixture
from tests.shown import PAGES
from tests.test_c_embedded import LARGEST_LIBRARY_BYTES, LARGEST_MEMORY_KB

WRITTEN = tuple(f"docs/{name}.md" for name in ("commands", "metrics", "parameters", "request"))
"""Pages that are written from the code, or from a kept result."""
_NUMBER = r"\d[\d,.]*\d|\d"
_WORD = r"two|three|four|five|six|seven|eight|nine|ten"
FIGURE = re.compile(
    rf"(?:{_NUMBER}) ?(?:%|µs|ms|ns|×|KB|MB|GB|instructions|CPU|cores?)(?!\w)"
    rf"|(?:{_NUMBER}|{_WORD}|hundreds?|thousands?) (?:\w+ )?(?:/s|(?:a|per|each|in a|every) second)"
    rf"|(?:{_NUMBER}) (?:bytes|microseconds|instructions) (?:each|a \w+|per \w+)"
    rf"|(?:{_NUMBER}) of (?:{_NUMBER})"
    rf"|(?:twice|half|(?:{_NUMBER}|{_WORD}) times) "
    r"(?:as (?:\w+) as|the (?:bytes|time|size|memory)|longer|faster|slower)"
    r"|within a (?:half|third|quarter|fifth|tenth)|by a (?:half|third|quarter|fifth|tenth)"
    rf"|lost (?:{_NUMBER})"
)
LIMITS = {
    "docs/c.md": ("148 KB", "200 KB", "256 KB"),
    "docs/install.md": ("15 MB",),
    "docs/kubernetes-node.md": ("80 %",),
    "docs/loss.md": ("250 ms", "80 %"),
    "docs/object-storage.md": ("1 GB",),
    "docs/public.md": ("four times a second",),
    "docs/replay.md": ("95 %",),
    "docs/segment-index.md": ("100 MB", "2 GB", "256 MB", "300 MB", "64 MB"),
    "docs/view.md": ("95 %",),
    "docs/why.md": ("80 %",),
    "helm/README.md": ("1 %", "10 %", "2 ×", "5 %", "50 MB", "80 %", "90 %"),
    "helm/RUNBOOK.md": ("50 MB", "80 %", "90 %"),
    "loadtests/README.md": ("0 %", "2 %", "2 ms", "5 %", "6 %", "95 %"),
}
"""Figures of each page that are no results: limits of the code, and bounds that the tests of these hold."""


def prose(page: str) -> str:
    """Return a page without blocks, names and what `results.py` has written, as one line."""
    text = re.sub(r"<!-- begin: .*?<!-- end: .*?-->|^ *```.*?^ *```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)", "NAME", text).split())


OWN = [page for page in PAGES if page not in WRITTEN and page != "CHANGELOG.md"]  # that one says what was measured then


@pytest.mark.parametrize("page", OWN)
def test_a_figure_of_a_page_is_a_kept_result_or_a_limit_of_the_code(page: str) -> None:
    assert sorted(set(FIGURE.findall(prose(page)))) == sorted(LIMITS.get(page, ()))


def test_the_table_has_the_share_of_a_segment_that_pages_say(tmp_path: Path) -> None:
    segments, cache = tmp_path / "segments", tmp_path / "cache"
    bench_view_fixture.make(segments, bench_view_fixture.SEGMENT_BYTES)
    command = [
        sys.executable,
        "-m",
        "inference_logging.cli.main",
        "index",
        str(segments),
        "--cache-directory",
        str(cache),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    plain = sum(path.stat().st_size for path in segments.glob("*.jsonl"))
    share = sum(path.stat().st_size for path in cache.rglob("*.parquet")) / plain
    assert f"about {round(share * 100) * 10} MB for each GB of plain segments" in prose("docs/segment-index.md")
    assert f"about {share:.0%} of its plain size".replace("%", " %") in " ".join(PAGES["docs/commands.md"].split())


def test_bounds_of_a_page_are_those_of_the_test_or_command() -> None:
    text = prose("docs/c.md")
    assert f"at most {LARGEST_LIBRARY_BYTES // 1000} KB there" in text
    assert f"at most {LARGEST_MEMORY_KB} KB of memory beside its code" in text
    index = prose("docs/segment-index.md")
    assert f"makes {bench_view.DEFAULT_BYTES / 1e9:.0f} GB of segments" in index
    assert f"first rows in {bench_view.FIRST_ROWS_S:.0f} s" in index
    assert f"{bench_view.MOST_MB} MB resident" in index
