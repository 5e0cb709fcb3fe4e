"""The pages of `view` in a browser: from 100,000 requests to the timeline of the slowest, filters, URL, live list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.segment_files import log, request, stamp, write_segment
from tests.view_browser import Window, append, needs_chromium, shown, window
from tests.view_server import Client

pytestmark = [pytest.mark.servers, needs_chromium]

MANY = 100_000
SLOWEST = 61_803
"""Where the slowest request stands."""
IDS = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "00000000000000aa"}
GAPS_US = [250_000, 1_750_000, 500_000, 500_000, 1_000_000]
QUEUED_S, PREFILL_S, DECODE_S, FIRST_S, DURATION_S, AFTER_S = 1.5, 0.5, 4.75, 2.25, 7.0, 0.5
END_S = SLOWEST * 0.01
BEGIN_S = END_S - DURATION_S - AFTER_S
CLOSE_PX = 1.0


def a_request(number: int) -> dict[str, Any]:
    more = {
        "tenant.id": ("acme", "globex")[number % 2],
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.output_tokens": 7,
    }
    outcome = "error" if number % 1000 == 7 else "ok"
    fields = {"duration_s": 0.05 + number % 97 / 1000, **more}
    return {**request(number * 0.01, outcome), "request_id": f"{number + 4096:016x}", **fields}


def the_slowest() -> dict[str, Any]:
    times = {"duration_s": DURATION_S, "after_response_s": AFTER_S, "gen_ai.response.time_to_first_chunk": FIRST_S}
    engine = {"engine.queued_s": QUEUED_S, "engine.prefill_s": PREFILL_S, "engine.decode_s": DECODE_S}
    chunks = {"chunks": len(GAPS_US) + 1, "chunk_gap_max_us": max(GAPS_US), "chunk_gaps_us": GAPS_US}
    return {**request(END_S, "error"), **IDS, **times, **engine, **chunks, "exception.type": "app.Overloaded",
            "exception.message": "too much", "tenant.id": "acme"}  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    records: list[dict[str, Any]] = [a_request(number) for number in range(MANY)]
    beside = {**request(BEGIN_S + 1.25), "duration_s": 1.0, "request_id": "00000000000000bb"}
    running = {**log(BEGIN_S + 2.0), "event_name": "engine.stats", "engine.running": 3, "engine.waiting": 1}
    records[SLOWEST] = the_slowest()
    inside = log(BEGIN_S + 0.75, "thinking", **IDS)
    write_segment(directory, [*records[: SLOWEST - 200], inside, running, beside, *records[SLOWEST - 200 :]])
    return directory


@pytest.fixture(scope="module")
def client(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with shown([logs], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, client: Client) -> Iterator[Window]:
    with window(browser, client.serving.url) as made:
        yield made


def box(found: Locator) -> tuple[float, float]:
    """Return where an element begins and ends, in pixels from the left."""
    place = found.bounding_box()
    assert place is not None
    return place["x"], place["x"] + place["width"]


def middle(found: Locator) -> float:
    begin, end = box(found)
    return (begin + end) / 2


def test_the_slowest_of_100_000_is_found_by_clicks_and_drawn_as_recorded(page: Window) -> None:
    page.open()
    page.wait_for_count(MANY + 1)
    page.page.get_by_role("button", name="Duration").click()
    first = page.rows().first
    expect(first).to_contain_text("7 s")
    first.locator(".c-duration").click()
    page.page.get_by_role("link", name="Page", exact=True).click()
    timeline = page.page.locator(".timeline-plot")
    begin, end = box(timeline.locator("[data-part=request] rect"))
    per_s = (end - begin) / DURATION_S

    def at(seconds: float) -> Any:
        return pytest.approx(begin + seconds * per_s, abs=CLOSE_PX)

    borders = (0.0, QUEUED_S, QUEUED_S + PREFILL_S, QUEUED_S + PREFILL_S + DECODE_S)
    for part, (left, right) in zip(("queue", "prefill", "decode"), itertools.pairwise(borders), strict=True):
        assert box(timeline.locator(f"[data-part={part}] rect")) == (at(left), at(right)), part
    assert box(timeline.locator("[data-part=after] rect")) == (at(DURATION_S), at(DURATION_S + AFTER_S))
    sent = [FIRST_S + sum(GAPS_US[:number]) / 1e6 for number in range(len(GAPS_US) + 1)]
    ticks = timeline.locator("path.tick")
    expect(ticks).to_have_count(len(sent))
    assert [middle(ticks.nth(number)) for number in range(len(sent))] == [at(seconds) for seconds in sent]
    assert middle(timeline.locator("[data-mark=log] circle")) == at(0.75)
    assert middle(timeline.locator("[data-mark=exception] path")) == at(DURATION_S)
    # What ran beside it from second 0.25 to second 1.25; a hundred others a second did, too.
    neighbours = [box(one) for one in timeline.locator(".neighbour").all()]
    assert (at(0.25), at(1.25)) in neighbours


def test_a_click_on_a_value_filters_and_the_back_button_takes_it_back(page: Window) -> None:
    page.open()
    page.rows().first.locator(".value", has_text="globex").click()
    expect(page.page.locator(".chip")).to_have_count(1)
    assert page.chips() == ["tenant.id = globex"]
    page.settle()
    page.wait_for_count(MANY // 2 - 1)  # the slowest is of acme
    page.rows().first.locator(".c-outcome .value").click(modifiers=["Shift"])
    expect(page.page.locator(".chip")).to_have_count(2)
    assert parse_qs(page.hash.partition("?")[2])["where"] == ["tenant.id=globex", "outcome!=ok"]
    page.settle()
    page.wait_for_count(MANY // 1000)
    page.page.go_back()
    page.page.go_back()
    expect(page.page.locator(".chip")).to_have_count(0)


def test_the_whole_state_stands_in_the_url(page: Window, browser: Browser) -> None:
    page.open()
    page.page.locator("#where").fill("duration_s>0.1")
    page.page.keyboard.press("Enter")
    page.page.locator("#text").fill("tiny")
    page.page.get_by_role("button", name="Tokens out").click()
    page.page.get_by_role("button", name="Range of time").click()
    page.page.get_by_label("From", exact=True).fill(stamp(10)[:19])
    page.page.get_by_label("To", exact=True).fill(stamp(40)[:19])  # short: a search in the text has a bound of time
    page.page.get_by_role("button", name="Apply").click()
    page.page.get_by_role("button", name="Choose columns").click()
    page.page.get_by_label("Pod", exact=True).uncheck()
    page.page.keyboard.press("Escape")
    expect(page.page.get_by_role("columnheader", name="Pod")).to_have_count(0)
    page.page.wait_for_url("**text=tiny**")
    page.settle()
    page.rows().nth(2).locator(".c-time").click()
    page.settle()
    with window(browser, page.page.url.partition("#")[0]) as other:
        other.open(f"#{page.hash}")
        assert other.hash == page.hash
        assert other.chips() == page.chips() == ["duration_s > 0.1"]
        assert other.count() == page.count() < MANY
        for place in ("#where", "#text"):
            assert other.page.locator(place).input_value() == page.page.locator(place).input_value()
        for place in (".grid-head", ".request-head h2", ".request-head p", ".range .tool-label"):
            assert other.page.locator(place).inner_text() == page.page.locator(place).inner_text()
        expect(other.page.get_by_role("columnheader", name="Tokens out")).to_have_attribute("aria-sort", "descending")


def test_a_condition_of_wrong_form_is_an_error_beside_its_input(page: Window) -> None:
    page.open()
    page.page.locator("#where").fill("no condition")
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("alert")).to_contain_text("“no condition”: must be FIELD, one of = != < <= > >= ~")
    assert page.chips() == []


def test_what_the_server_refuses_stands_on_the_page_in_its_words(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as refused:
        refused.open("#/requests?where=no+condition")
        expect(refused.page.get_by_role("alert")).to_contain_text("no condition")
        refused.faults.clear()  # the browser's own line about an answer of 400


def test_a_folder_without_records_says_so(browser: Browser, tmp_path: Path) -> None:
    with shown([tmp_path], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open()
        expect(page.page.locator(".empty")).to_contain_text("No requests in this folder yet.")
        page.open("#/overview")
        expect(page.page.locator(".empty")).to_contain_text("No request matches.")
        page.open("#/request/none-20261121T050000.000Z-00000000deadbeef-000001.jsonl%3A9")
        expect(page.page.locator(".empty")).to_contain_text("This record is gone.")
        page.faults.clear()  # the browser's own line about an answer of 404


def test_the_live_list_shows_what_comes_and_counts_what_waits(browser: Browser, tmp_path: Path) -> None:
    live = write_segment(tmp_path, [request(1)], sealed=False)
    with shown([tmp_path], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open()
        expect(page.page.locator(".list-state [role=status]")).to_have_text("live")
        append(live, [request(2), request(3)])
        expect(page.rows()).to_have_count(3)
        page.page.keyboard.press("p")
        append(live, [request(4)])
        expect(page.page.get_by_role("button", name="1 new")).to_be_visible()
        expect(page.rows()).to_have_count(3)
        page.page.keyboard.press("p")
        expect(page.rows()).to_have_count(4)
        assert [one[:12] for one in page.rows().all_inner_texts()] == [
            f"05:00:0{second}.000" for second in (4, 3, 2, 1)
        ]
