"""The benchmark's page as a browser shows it: plots, goals, tables, settings; light and dark, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inference_logging.prove.bench import page
from inference_logging.prove.bench.figures import bytes_text, share_text, threads_text, time_text
from inference_logging.prove.bench.plots import Cells, losses
from inference_logging.prove.bench.result import Result
from inference_logging.read.terminal import safe
from tests.bench_results import HOSTILE, made_up
from tests.browser import DESK, DRAWN, PHONE, browser, is_readable, needs_browser, violations, wait_until_fits

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.servers

PLOTS = [
    "Latency of a call, open loop",
    "Latency of a call, closed loop",
    "Throughput against threads",
    "Loss",
    "Peak memory above the start",
    "Interpreter CPU per record",
    "A call that makes a record, and one that is filtered out",
]


@pytest.fixture(scope="module")
def result() -> Result:
    return made_up()


@pytest.fixture(scope="module")
def written(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "bench.html"
    page.write(path, result)
    return path


@pytest.fixture(scope="module")
def shown(written: Path) -> Iterator[Page]:
    with browser() as opened:
        opened.goto(written.as_uri())
        yield opened


@needs_browser
def test_every_plot_is_there_with_a_size_marks_and_words(shown: Page) -> None:
    drawn = shown.evaluate(DRAWN)
    assert [plot["name"] for plot in drawn] == PLOTS
    for plot in drawn:
        assert plot["width"] > 500, plot
        assert plot["height"] > 100, plot
        assert plot["marks"] > 1, plot
        assert plot["words"].endswith("."), plot


@needs_browser
def test_a_view_shows_the_cells_of_its_threads(shown: Page, result: Result) -> None:
    row = shown.locator("#plot-latency-closed .bars-row", has_text="loguru").first
    for threads in (64, 1):
        shown.locator("#plot-latency-closed").get_by_role("button", name=threads_text(threads), exact=True).click()
        found = Cells(result).estimate("loguru", threads, "closed", 256, "p50_ns")
        assert found is not None
        assert row.locator(".bars-value").inner_text().split(" · ")[0] == time_text(found["value"])


@needs_browser
def test_hover_over_the_throughput_lists_the_quickest_first(shown: Page, result: Result) -> None:
    plot = shown.locator("#plot-throughput .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + 2, box["y"] + 20)
    cells = Cells(result)
    found = {cells.title(name): cells.estimate(name, 1, "closed", 256, "records_per_s") for name in cells.peers}
    rates = {title: one["value"] for title, one in found.items() if one}
    names = shown.locator("#plot-throughput .plot-tip-row bdi").all_inner_texts()
    assert names == [safe(title) for title in sorted(rates, key=lambda title: -rates[title])]


@needs_browser
def test_the_page_is_readable_in_light_and_dark(shown: Page) -> None:
    is_readable(shown)
    assert violations(shown) == []


@needs_browser
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "opened"])
def test_neither_a_desk_nor_a_phone_scrolls_the_page_sideways(shown: Page, opened: bool) -> None:
    shown.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {str(opened).lower()})")
    try:
        for width in (PHONE, DESK):
            shown.set_viewport_size({"width": width, "height": 900})
            wait_until_fits(shown)
    finally:
        shown.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")


@needs_browser
def test_titles_settings_and_reasons_are_text_only(shown: Page) -> None:
    assert shown.evaluate("document.querySelectorAll('main b:not(.plot-tip b), link, img, iframe').length") == 0
    text = shown.evaluate("document.body.textContent")
    assert HOSTILE.replace("\u202e", "\\u202e") in text
    assert "\u202e" not in text
    assert "picologging has no wheel for Python 3.11 <here>" in text
    assert "loguru.configure(\n    level='INFO' & <b>,\n)" in text


@needs_browser
def test_settings_and_tables_are_closed_and_hold_every_peer_and_cell(shown: Page, result: Result) -> None:
    assert shown.evaluate("document.querySelectorAll('details[open]').length") == 0
    present = [peer for peer in result["peers"] if peer["missing"] is None]
    assert shown.evaluate("document.querySelectorAll('details pre').length") == len(present)
    assert shown.evaluate("document.querySelectorAll('details tbody tr').length") == len(result["cells"])


@needs_browser
def test_what_is_not_reached_comes_first(shown: Page) -> None:
    rows = shown.evaluate("[...document.querySelectorAll('table.goals tbody tr')].slice(0, 3).map(r => r.innerText)")
    assert [re.split(r"\s{2,}|\t", row)[-1].strip() for row in rows] == [
        "not reached",
        "not measured: fapilog is missing",
        "reached",
    ]
    figures = dict(re.findall(r"^(.+)\n+(.+)$", shown.evaluate("document.querySelector('dl').innerText"), re.MULTILINE))
    assert figures["Goals reached"] == "1 of 3"
    assert figures["Ways of logging"] == "14 of 15"


def test_a_figure_stands_with_its_interval_and_what_went_wrong_below_it(result: Result) -> None:
    source = page.page(result)
    cell = next(cell for cell in result["cells"] if cell["peer"] == "loguru")
    found = cell["figures"]["p50_ns"]
    assert found is not None
    low, high = time_text(found["low"]), time_text(found["high"])
    assert f"<td>{time_text(found['value'])}<small>{low} … {high}</small></td>" in source
    assert "fapilog, production preset: round 2: the child ended with -9." in source
    assert "FileHandler + fsync: did not keep up with the rate." in source


def test_what_the_noise_resolves_is_the_difference_of_the_two_empty_calls(result: Result) -> None:
    for cell in result["cells"]:
        for one in cell["rounds"]:
            one["p50_ns"] = 105.0 if cell["peer"] == "empty-again" else 100.0
    assert "differ by 4.88 % at the median over cells and rounds, and by 4.88 % at most" in page.page(result)


def test_one_round_claims_no_intervals(result: Result) -> None:
    source = page.page({**result, "rounds": 1})
    assert "One round has no intervals" in source
    assert "bootstrap interval" not in source.partition("How it was measured")[2].partition("<h2>")[0]


def test_lost_and_refused_are_shares_of_the_calls(result: Result) -> None:
    found = losses(Cells(result), "closed")
    assert found["otel"].text() == "39.00 % lost"
    assert found["ours-event"].text() == "0.06 % refused"
    assert found["loguru"].text() == "0"
    assert found["stdlib-fsync"].text() == "50.00 % late"
    assert "empty" not in found


def test_a_quick_run_is_marked(result: Result) -> None:
    mark = "the figures mean nothing"
    assert mark not in page.page(result)
    assert mark in page.page({**result, "quick": True})


def test_a_result_without_cells_makes_a_page_without_plots(result: Result) -> None:
    source = page.page({**result, "cells": [], "filtered": [], "enabled": [], "goals": []})
    assert "<figure" not in source
    assert "What was compared" in source


def test_units_are_those_that_people_read() -> None:
    assert [time_text(value) for value in (0.5, 260, 8900, 2e6, 3e9, 0)] == [
        "0.5 ns",
        "260 ns",
        "8.9 µs",
        "2 ms",
        "3 s",
        "0 s",
    ]
    assert [bytes_text(value) for value in (100, 4096, 65536, 3 << 30)] == ["100 B", "4 KiB", "64 KiB", "3 GiB"]
    assert [share_text(value) for value in (0, 1e-9, 0.1234, 1)] == ["0", "< 0.01 %", "12.34 %", "100 %"]
    assert share_text(1 - 1e-9) == "> 99.99 %"
