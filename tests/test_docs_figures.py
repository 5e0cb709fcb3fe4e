"""A figure of speed, size or loss in a page is a kept result, or a number that the code or a test holds.

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
from tests.shown import PAGES, source
from tests.test_c_embedded import LARGEST_LIBRARY_BYTES, LARGEST_MEMORY_KB

WRITTEN = tuple(f"docs/{name}.md" for name in ("commands", "metrics", "parameters", "request"))
"""Pages that are written from the code, or from a kept result."""
TOGETHER = ("inference_logging/read/stats/comparison.py", "TOGETHER: Final = 0.95")
INTERVAL = ("inference_logging/read/stats/interval.py", "_LEVEL: Final = 0.95")
RESERVED = ("docs/parameters.md", "| `overflow_info_ratio` | float | `0.8` |")
WRITTEN_BYTES = ("helm/values.yaml", "bytesPerSecond: 50000000")
KILLED_BYTES = ("helm/templates/_supervised.tpl", "(mul 9 (include")
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
HELD = {
    "docs/c.md": dict.fromkeys(("200 KB", "256 KB", "148 KB"), ("tests/test_c_embedded.py", "128 + 16 + 4")),
    "docs/install.md": {"15 MB": ("tests/test_images.py", "<= 15_000_000")},
    "docs/loss.md": {
        "80 %": RESERVED,
        "250 ms": ("native/queue/src/queue_check.rs", "from_millis(250)"),
    },
    "docs/object-storage.md": {"1 GB": ("inference_logging/ship/s3/table.py", '"1GB"')},
    "docs/operating.md": {"95 %": TOGETHER, "99 %": ("tests/test_comparison.py", "each is one of 99 % (Bonferroni)")},
    "docs/public.md": {
        "four times a second": (
            "native/listen/src/status/health.rs",
            "RECENT_LOOK: Duration = Duration::from_millis(250)",
        )
    },
    "docs/replay.md": {"95 %": INTERVAL},
    "docs/segment-index.md": {
        "100 MB": ("tests/test_docs_figures.py", "plain size"),
        "256 MB": ("inference_logging/read/table/catalog.py", "_MOST_IN_MEMORY: Final = 256 << 20"),
        "64 MB": ("inference_logging/cli/query_table.py", "LEAST_BYTES: Final = 64 << 20"),
        "2 GB": ("loadtests/view/bench_view.py", "DEFAULT_BYTES: Final = 2e9"),
        "300 MB": ("loadtests/view/bench_view.py", "MOST_MB: Final = 300"),
    },
    "docs/view.md": {"95 %": INTERVAL},
    "docs/why.md": {"80 %": RESERVED},
    "helm/README.md": {
        "80 %": ("helm/templates/_sizes.tpl", ".Values.storage.segments.size | int64) 8) 10"),
        "90 %": KILLED_BYTES,
        "2 ×": ("helm/templates/_sizes.tpl", '(mul 2 (include "inference-logging.queuesBytes"'),
        "1 %": ("helm/files/dashboard.json", '"value": 0.01\n'),
        "5 %": ("helm/values.yaml", "loggingCpuRatio: 0.05"),
        "10 %": ("helm/values.yaml", "nodeOtherCpuRatio: 0.1"),
        "50 MB": WRITTEN_BYTES,
    },
    "helm/RUNBOOK.md": {"80 %": RESERVED, "90 %": KILLED_BYTES, "50 MB": WRITTEN_BYTES},
    "loadtests/README.md": {
        "95 %": ("loadtests/turns/bench_turns_ratio.py", "(0.025, 0.975)"),
        "0.3 %": ("loadtests/turns/bench_turns_report.py", "PRECISION: Final = 0.003"),
        "2 ms": ("loadtests/turns/bench_ab.py", "BURN_US: Final = 2000.0"),
        **dict.fromkeys(("0 %", "5 %"), ("loadtests/turns/bench_ab.py", "COSTS: Final = (0.0, 0.05)")),
        "2 %": ("loadtests/instructions/bench_instructions.py", "TOLERANCE: Final = 0.02"),
        "6 %": ("loadtests/instructions/bench_instructions.py", "OF_FASTAPI: Final = 0.06"),
    },
}
"""Figures that are no results: limits of the code and bounds that a test holds, with the file and the words in it."""


@pytest.mark.parametrize(("path", "words"), sorted({held for of in HELD.values() for held in of.values()}))
def test_a_figure_that_is_no_result_stands_where_it_is_held(path: str, words: str) -> None:
    assert words in source(path)


def prose(page: str) -> str:
    """Return a page without blocks, names and what `results.py` has written, as one line."""
    text = re.sub(r"<!-- begin: .*?<!-- end: .*?-->|^ *```.*?^ *```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)", "NAME", text).split())


OWN = [page for page in PAGES if page not in WRITTEN and page != "CHANGELOG.md"]  # that one says what was measured then


@pytest.mark.parametrize("page", OWN)
def test_a_figure_of_a_page_is_a_kept_result_or_is_held_by_the_code(page: str) -> None:
    assert sorted(set(FIGURE.findall(prose(page)))) == sorted(HELD.get(page, {}))


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
