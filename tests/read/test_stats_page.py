"""The page of `stats --html` as a browser shows it: figures, rows, plots; light and dark, wide and narrow windows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inference_logging.read.segments import segments
from inference_logging.read.stats.counting import count
from inference_logging.read.stats.counts import Counts
from inference_logging.read.stats.report import page as make_page
from inference_logging.read.stats.report import plots
from tests.kit.browser import DESK, DRAWN, PHONE, browser, is_readable, needs_browser, violations, wait_until_fits
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
PLOTS = [
    "Requests over time",
    "Outcomes",
    "Duration over time",
    "Durations of all requests over time",
    "Times",
    "By route",
    "Tokens by model",
]


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
def shown(report: Path) -> Iterator[Page]:
    with browser() as page:
        page.goto(report.as_uri())
        yield page


@needs_browser
def test_a_person_reads_the_headline_figures_and_the_rows_of_the_outcomes(shown: Page) -> None:
    text = shown.evaluate("document.body.innerText")
    first = shown.evaluate("document.querySelector('dl').innerText")
    figures = dict(re.findall(r"^(.+)\n+(.+)$", first.replace("\u00a0", " "), re.MULTILINE))
    assert "3.00\u00a0%" in first, "a unit is not parted from its number"
    assert figures["Requests"] == "200"
    assert figures["Requests per second"] == "1.01"
    assert figures["Failed"] == "3.00 %"
    assert figures["Tokens in / out"] == "200 k / 20 k"
    assert figures["Dropped records"] == "42"
    for row in ("ok\t190\t95.00 %", "error\t6\t3.00 %", "client_disconnect\t4\t2.00 %", "queue_full, INFO\t41"):
        assert f"{row}\n" in text, row
    assert "2026-11-21 05:00:00 to 2026-11-21 05:03:19 UTC" in text


@needs_browser
def test_every_plot_is_there_with_marks_and_words(shown: Page) -> None:
    drawn = shown.evaluate(DRAWN)
    assert [plot["name"] for plot in drawn] == PLOTS
    for plot in drawn:
        assert plot["width"] > 500, plot
        assert plot["marks"] > 1, plot
        assert plot["words"].endswith("."), plot


@needs_browser
def test_hover_over_an_interval_shows_how_many_requests_ended_in_it(shown: Page) -> None:
    plot = shown.locator("#plot-over-time .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    # 200 requests, one per second, of which every interval has one.
    shown.mouse.move(box["x"] + box["width"] * 100.5 / 200, box["y"] + 50)
    tip = shown.locator("#plot-over-time .plot-tip").inner_text().split("\n")
    assert tip[0] == "2026-11-21 05:01:40 UTC"
    assert {tip[2], tip[4]} == {"1/s", "0/s"}


@needs_browser
def test_names_from_requests_are_text_only(shown: Page) -> None:
    assert shown.evaluate("document.querySelectorAll('main b:not(.plot-tip b), link, img, iframe').length") == 0
    text = shown.evaluate("document.body.innerText")
    assert "模型<script>alert(1)</script>" in text
    assert "\\u202eevil" in text
    assert "\u202e" not in text


@needs_browser
def test_the_page_is_readable_in_light_and_dark_and_on_a_phone(shown: Page) -> None:
    is_readable(shown)
    shown.set_viewport_size({"width": PHONE, "height": 900})
    try:
        wait_until_fits(shown)
        assert violations(shown) == []
    finally:
        shown.set_viewport_size({"width": DESK, "height": 900})


def counted(directory: Path, records: list[dict[str, Any]]) -> Counts:
    write_segment(directory, records)
    return count(segments(directory), None, None, lambda _: None).counts


def test_without_requests_the_page_says_so_and_has_no_empty_plots(tmp_path: Path) -> None:
    source = make_page(counted(tmp_path, [log(1)]), "logs")
    assert "No requests." in source
    assert "<figure" not in source


def test_one_request_alone_makes_a_page(tmp_path: Path) -> None:
    assert make_page(counted(tmp_path, [request(1, duration_s=0)]), "logs").count("<figure") == 3


def test_a_distribution_holds_every_request_and_its_median(tmp_path: Path) -> None:
    times = enumerate([0, 0.01, 0.01, 0.5, 20])
    counts = counted(tmp_path, [request(number, duration_s=seconds) for number, seconds in times])
    (plot,) = (plot for plot in plots(counts) if plot.name == "distribution")
    (series,) = plot.data["series"]
    assert sum(series["counts"]) == 5
    assert series["edges"] == sorted(series["edges"])
    assert len(series["edges"]) == len(series["counts"]) + 1
    up_to_a_tenth = sum(count for edge, count in zip(series["edges"][1:], series["counts"], strict=True) if edge < 0.1)
    assert up_to_a_tenth == 3


def test_the_heat_map_counts_each_request_once(tmp_path: Path) -> None:
    (heat,) = (plot for plot in plots(counted(tmp_path, records())) if plot.kind == "heatmap")
    assert sum(map(sum, heat.data["cells"])) == 200
    assert {len(cell) + 1 for cell in heat.data["cells"]} == {len(heat.data["edges"])}


def test_a_route_whose_requests_took_no_time_does_not_stretch_the_scale_of_all(tmp_path: Path) -> None:
    """A logarithmic axis has no 0; the page draws no dot for it, and says 0 s."""
    took = [("/a", 0.004), ("/b", 4.0), ("/killed", 0.0)]
    made = [request(n, http__route=name, duration_s=s) for n, (name, s) in enumerate(took)]
    data = next(plot for plot in plots(counted(tmp_path, made)) if plot.title == "By route").data
    assert data["log"]
    assert min(data["series"][0]["values"]) == 0


def test_what_failed_has_the_color_that_it_has_in_view(tmp_path: Path) -> None:
    series = {plot.name: plot.data.get("series", []) for plot in plots(counted(tmp_path, records()))}
    failed = [one for name in ("over-time", "outcomes") for one in series[name] if one["name"] == "failed"]
    assert [one["colour"] for one in failed] == ["bad", "bad"]
