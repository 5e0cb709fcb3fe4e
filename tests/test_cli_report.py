"""The page of `stats --html` as a browser shows it: figures, rows, plots; light and dark, wide and narrow windows."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.stats.counts import Counts
from inference_logging.stats.report import page as make_page
from tests.browser import CONTRAST, DRAWN, OVERLAPS, Page, browser, needs_browser
from tests.command_line import run
from tests.segment_files import log, request, write_segment

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parent.parent
PLOTS = ["over-time", "outcomes", "durations", "distribution", "routes", "tokens"]


def records() -> list[dict[str, Any]]:
    dice = random.Random(7)
    outcomes = ["ok"] * 190 + ["error"] * 6 + ["client_disconnect"] * 4
    models = ["llama-3.3-70b", "模型<script>alert(1)</script>", "$\\bad{$ & \u202eevil", "m" * 200]
    return [
        request(
            number,
            outcome,
            http__route=f"/v1/{number % 12}/{'long-' * (number % 12)}<b>",
            duration_s=dice.lognormvariate(-1, 2.5),
            gen_ai__response__model=models[number % 4],
            gen_ai__response__time_to_first_chunk=dice.lognormvariate(-3, 1),
            chunk_gap_mean_us=dice.randrange(100, 50_000),
            gen_ai__usage__input_tokens=1000,
            gen_ai__usage__output_tokens=100,
        )
        for number, outcome in enumerate(dice.sample(outcomes, 200))
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    write_segment(directory, [*records(), log(1)], dropped={"queue_full": {"INFO": 41, "DEBUG": 1}})
    file = tmp_path_factory.mktemp("page") / "report.html"
    done = run("stats", str(directory), "--html", str(file))
    assert (done.code, done.out, done.err) == (0, f"wrote {file}\n", "")
    return file


@pytest.fixture(scope="module")
def shown(report: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        page.open(report)
        page.resize(1100)
        yield page


@needs_browser
def test_a_person_reads_the_headline_figures_and_the_rows_of_the_outcomes(shown: Page) -> None:
    text = shown.evaluate("document.body.innerText")
    figures = dict(re.findall(r"^(.+)\n+(.+)$", shown.evaluate("document.querySelector('dl').innerText"), re.MULTILINE))
    assert figures["Requests"] == "200"
    assert figures["Requests per second"] == "1.01"
    assert figures["Not ok"] == "5.00%"
    assert figures["Tokens in / out"] == "200 k / 20 k"
    assert figures["Dropped records"] == "42"
    for row in ("ok\t190\t95.00%", "error\t6\t3.00%", "client_disconnect\t4\t2.00%", "queue_full, INFO\t41"):
        assert f"{row}\n" in text, row
    assert "2026-11-21 05:00:00 to 2026-11-21 05:03:19 UTC" in text


@needs_browser
def test_every_plot_has_a_size_marks_a_name_and_words(shown: Page) -> None:
    drawn = shown.evaluate(DRAWN)
    assert len(drawn) == len(PLOTS)
    for plot in drawn:
        assert plot["width"] > 500, plot
        assert plot["height"] > 100, plot
        assert plot["marks"] > 0, plot
        assert plot["name"], plot
        assert plot["words"].endswith("."), plot


@needs_browser
def test_no_label_of_a_plot_lies_over_another(shown: Page) -> None:
    assert shown.evaluate("document.querySelectorAll('svg text').length") > 50
    assert shown.evaluate(OVERLAPS) == []


@needs_browser
def test_text_can_be_read_in_light_and_in_dark(shown: Page) -> None:
    papers = []
    for scheme in ("dark", "light"):
        shown.prefer(scheme)
        contrast = shown.evaluate(CONTRAST)
        # WCAG 2.2, level AA.
        assert contrast["text"] >= 4.5, scheme
        assert contrast["labels"] >= 4.5, scheme
        papers.append(contrast["paper"])
    assert papers[0] < 0.05
    assert papers[1] > 0.9


@needs_browser
def test_names_from_requests_are_text_only(shown: Page) -> None:
    assert shown.evaluate("document.querySelectorAll('script, main b, link, img, iframe').length") == 0
    text = shown.evaluate("document.body.innerText")
    assert "模型<script>alert(1)</script>" in text
    assert "\\u202eevil" in text
    assert "\u202e" not in text


@needs_browser
def test_the_page_loads_nothing(shown: Page) -> None:
    assert shown.evaluate("performance.getEntriesByType('resource').length") == 0


@needs_browser
def test_ids_are_the_pages_only_ones_and_each_reference_is_found(shown: Page) -> None:
    ids = shown.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    used = shown.evaluate("[...document.querySelectorAll('use')].map(e => e.getAttribute('xlink:href').slice(1))")
    clips = shown.evaluate("document.querySelector('main').innerHTML.match(/url\\(#[^)]+/g).map(u => u.slice(5))")
    assert used
    assert clips
    assert set(used) | set(clips) <= set(ids)


@needs_browser
def test_a_narrow_window_scrolls_plots_and_tables_not_the_page(shown: Page) -> None:
    shown.resize(420)
    try:
        assert shown.evaluate("innerWidth") == 420
        assert shown.evaluate("document.documentElement.scrollWidth") <= 420
        assert shown.evaluate("document.querySelector('svg').getBoundingClientRect().width") > 500
    finally:
        shown.resize(1100)


def test_the_source_names_no_other_resource(report: Path) -> None:
    source = report.read_text(encoding="utf-8")
    source = source.replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace(
        'xmlns="http://www.w3.org/2000/svg"', ""
    )
    assert not re.search(r"(?:https?:)?//\w|@import|\bsrc=|url\((?!#)", source)
    assert "default-src 'none'" in source


def test_without_requests_the_page_says_so_and_has_no_empty_plots() -> None:
    counts = Counts()
    counts.add(log(1))
    source = make_page(counts, "logs")
    assert "No requests." in source
    assert "<svg" not in source


def test_one_request_alone_makes_a_page() -> None:
    counts = Counts()
    counts.add(request(1, duration_s=0))
    assert make_page(counts, "logs").count("<svg") == 3


def test_where_matplotlib_is_missing_the_extra_is_named(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1)])
    code = "import sys; sys.modules['matplotlib'] = None; from inference_logging.cli.main import main; main()"
    command = [sys.executable, "-c", code, "stats", str(tmp_path), "--html", str(tmp_path / "report.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs matplotlib: pip install 'inferlog[cli]'" in done.stderr
    assert not (tmp_path / "report.html").exists()


@needs_browser
def test_the_load_tests_report_is_as_readable(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPARISON, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with browser(tmp_path_factory.mktemp("profile")) as page:
        page.open(tmp_path / "report.html")
        page.resize(1100)
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.querySelectorAll('svg text').length") > 30
        assert page.evaluate(
            "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height > 300)"
        ) == [
            True,
            True,
        ]
        row = page.evaluate("document.querySelector('tr.ours').innerText")
        assert re.sub(r"\s+", " ", row).startswith("ours 990 990 … 990 0.990 ")
        for scheme in ("dark", "light"):
            page.prefer(scheme)
            contrast = page.evaluate(CONTRAST)
            assert min(contrast["text"], contrast["labels"]) >= 4.5, scheme


COMPARISON = f"""
import sys
sys.path.insert(0, {str(ROOT / "loadtests")!r})
from pathlib import Path
import report
from load import Load
from measure import Books
from summary import rows
modes = {{"none": 1000, "uvicorn-access": 700, "stdlib-file": 600, "stdlib-queue": 500, "ours": 990, "control": 1001}}
loads = {{mode: [Load(rps, 0, 1.0, 2.0, 9.0, 0.9)] for mode, rps in modes.items()}}
books = {{(scenario, mode): Books(1000, 1000) for scenario in ("trivial", "chat") for mode in modes}}
measured = rows({{"trivial": loads, "chat": loads}}, books)
report.write(Path(sys.argv[1]), "Compared", measured, {{"machine": "x"}}, ["one"])
"""
