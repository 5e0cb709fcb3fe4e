"""What the pages of `view` show, looked at in a browser: numbers with what they are of, nothing out of its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.kit.command_line import run
from tests.kit.segment_files import request, write_segment
from tests.kit.view_browser import CLOSE_PX, Window, box, needs_chromium, shown, window
from tests.kit.view_server import Client

pytestmark = [pytest.mark.servers, needs_chromium]

GAPS_US = [10_000, 30_000, 5_000, 300_000]
FIRST = "gen_ai.response.time_to_first_chunk"


def streamed(number: int) -> dict[str, Any]:
    tokens = {"gen_ai.usage.output_tokens": 5, "chunks": 5, "chunk_gaps_us": GAPS_US, "http.request.body.size": 2048}
    untimed = {"chunks": 9, "chunk_gaps_truncated": 4, "chunk_gap_max_us": 400_000} if number == 9 else {}
    return {**whole(number), **tokens, **untimed, FIRST: 0.05, "gen_ai.request.model": "tiny-1"}


def whole(number: int) -> dict[str, Any]:
    more = {"gen_ai.response.model": "tiny-1", "duration_s": 0.5 + number / 10}
    return {**request(number * 5.0), **more, "request_id": f"{number + 1:016x}"}


def unanswered(number: int, outcome: str, duration_s: float) -> dict[str, Any]:
    made = {**request(number * 5.0, outcome), "duration_s": duration_s, "request_id": f"{number + 1:016x}"}
    del made["http.response.status_code"]
    return made


def connection() -> dict[str, Any]:
    more = {"websocket.messages_received": 4, "websocket.close_code": 1000, "http.response.status_code": 101}
    made = {
        **request(33.0),
        "event_name": "websocket.connection",
        "http.route": "/ws/{room}",
        "duration_s": 23.4,
        **more,
    }
    del made["http.request.method"]
    return made


def twelve() -> list[dict[str, Any]]:
    answered = [streamed(number) if number % 2 else whole(number) for number in range(10)]
    return [*answered, unanswered(10, "client_disconnect", 0.0), unanswered(11, "timeout", 12.0)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    logs = tmp_path_factory.mktemp("logs")
    write_segment(logs, [*twelve(), connection()])
    with shown([logs], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, client: Client) -> Iterator[Window]:
    with window(browser, client.serving.url) as made:
        yield made


def the_key(client: Client, *where: str) -> str:
    """Return the key, as a route has it, of the first request that fulfils conditions."""
    events = ["request", "websocket.connection"]
    return str(client.rows(where=list(where), events=events, order="oldest")[0]["key"]).replace(":", "%3A")


def middle(found: Locator) -> float:
    """Return the middle of an element, in pixels from the top."""
    place = found.bounding_box()
    assert place is not None
    return place["y"] + place["height"] / 2


def test_sampled_requests_count_with_their_weights_as_in_stats(browser: Browser, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    sampled = [{**whole(number), "adjusted_count": 10.0} for number in range(9)]
    write_segment(logs, [*sampled, *(unanswered(number, "error", 1.0) for number in (20, 21))])
    assert re.search(r"^Failed +2.17 %$", run("stats", str(logs)).out, re.MULTILINE)
    with shown([logs], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open("#/overview")
        tiles = page.page.locator(".tiles div")
        expect(tiles.first.locator("dd")).to_contain_text(re.compile("^92"))
        expect(tiles.filter(has_text="Failed").locator("dd")).to_have_text("2.17 %2 requests")
        expect(page.page.locator("main")).to_contain_text("11 records, each weighted by adjusted_count.")
        expect(page.page.locator("main")).to_contain_text("92 of 92 requests have it")
        expect(page.page.locator("table tbody tr").first).to_contain_text("922.17 %")
        page.open("#/compare?a.where=outcome%3Dok&b.where=outcome%3Derror")
        expect(page.page.locator(".side-a")).to_contain_text("90 requests")
        expect(page.page.locator("main")).to_contain_text("A 9 of 9 records, B 2 of 2")


def test_one_failed_request_is_one_request(page: Window) -> None:
    page.open("#/overview")
    expect(page.page.locator(".tiles div", has_text="Failed").locator("dd")).to_have_text("8.33 %1 request")


def test_models_are_those_that_answered_where_none_was_named_and_none_is_a_row(page: Window) -> None:
    page.open("#/overview?by=model")
    rows = page.page.get_by_role("region", name="By group").locator("tbody tr")
    expect(rows).to_have_count(2)
    assert [row.locator("th, td").all_inner_texts()[:2] for row in rows.all()] == [["tiny-1", "10"], ["(none)", "2"]]
    rows.first.get_by_role("button").click()
    expect(page.page.locator(".tiles dd").first).to_contain_text("10")


def test_no_figure_stands_between_plots_and_tables(page: Window) -> None:
    page.open("#/overview")
    assert (
        page.page.locator(".two").first.evaluate("box => [...box.childNodes].map(node => node.nodeName)")
        == ["SECTION"] * 4
    )


def test_twelve_requests_are_drawn_in_twelve_buckets(page: Window) -> None:
    with page.page.expect_request(
        lambda asked: '"heatmap":"duration_s"' in (url := unquote(asked.url)) and '"buckets":12,' in url
    ):
        page.open("#/overview")


def test_heat_maps_say_of_how_many_requests_they_are_and_what_a_colour_is(page: Window) -> None:
    page.open("#/overview")
    duration = page.page.get_by_role("region", name="Duration", exact=True)
    expect(duration).to_contain_text("12 of 12 requests have it; 1 of 0 s not drawn")
    expect(page.page.get_by_role("region", name="Time to first chunk")).to_contain_text("5 of 12 requests have it")
    expect(duration.locator(".plot-colours")).to_have_text("1 requestin a cell")


def test_one_time_is_in_one_place_in_all_plots_of_a_column(page: Window) -> None:
    page.open("#/overview")
    plots = page.page.locator(".two .u-over")
    expect(plots).to_have_count(4)
    upper, lower = box(plots.nth(0)), box(plots.nth(2))
    assert list(upper) == pytest.approx(list(lower), abs=CLOSE_PX)
    page.page.mouse.move(upper[0] + 0.7 * (upper[1] - upper[0]), middle(plots.nth(0)))
    cursors = page.page.locator(".two .u-cursor-x")
    expect(cursors.nth(2)).to_be_visible()
    assert box(cursors.nth(0))[0] == pytest.approx(box(cursors.nth(2))[0], abs=CLOSE_PX)


def test_websockets_are_in_the_list_and_in_no_figure_of_requests(page: Window) -> None:
    page.open()
    page.wait_for_count(13)
    expect(page.page.locator(".list-count")).to_contain_text("requests and WebSockets")
    expect(page.page.locator(".c-method", has_text="WS")).to_have_count(1)
    page.page.get_by_label("What is listed").select_option("request")
    page.wait_for_count(12)
    page.open("#/overview")
    expect(page.page.locator(".tiles dd").first).to_contain_text("12")
    page.page.get_by_role("link", name="1 WebSocket connection").click()
    page.wait_for_count(1)
    page.rows().first.click()
    expect(page.page.locator(".panel .figures")).to_contain_text("Messages in4Close code1000")


def test_columns_without_a_value_are_hidden_and_the_wait_is_explained(page: Window) -> None:
    page.open()
    names = page.page.get_by_role("columnheader").all_inner_texts()
    assert [name.strip() for name in names] == [
        "Time", "Status", "Outcome", "Method", "Route", "Model", "Duration", "First chunk", "Tokens out",
    ]  # fmt: skip
    legend = page.page.locator(".bar-legend")
    expect(legend).to_have_text("wait for the first chunk")
    colours = [place.first.evaluate("one => getComputedStyle(one).backgroundColor") for place in (
        legend.locator("i"), page.rows().locator(".bar-first"))]  # fmt: skip
    assert colours[0] == colours[1]


def test_a_suggestion_promises_what_its_condition_gives(page: Window) -> None:
    page.open("#/requests?kind=request")
    page.page.locator("#where").fill("http.response.status_code<=")
    offer = page.page.locator("#where-offers li")
    expect(offer).to_have_text(["http.response.status_code<=20010"])
    offer.click()
    page.wait_for_count(10)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("status_code>200", "no record has the field 'status_code'; the nearest: http.response.status_code"),
        ("outcom=ok", "no record has the field 'outcom'; the nearest: outcome"),
        ("duration_s>long", "duration_s is a number, but 'long' is not"),
        ("ok", "must be FIELD, one of = != < <= > >= ~, and VALUE"),
    ],
)
def test_the_filter_refuses_what_it_does_not_know(page: Window, typed: str, said: str) -> None:
    page.open()
    page.page.locator("#where").fill(typed)
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("alert")).to_contain_text(said)
    assert page.chips() == []
    page.faults.clear()  # the browser's own line about an answer of 400


def test_a_field_of_the_application_s_own_is_no_unknown_one(page: Window, client: Client) -> None:
    assert client.get("api/condition", text="chunk_gaps_us=5").status == 200
    assert client.get("api/condition", text="websocket.close_code=1000").status == 200
    assert client.get("api/condition", text="attributes.none=1").status == 400


def test_the_filter_takes_short_names_and_shows_the_field_that_they_mean(page: Window) -> None:
    page.open("#/requests?kind=request")
    page.page.locator("#where").fill("status<=")
    expect(page.page.locator("#where-offers li")).to_have_text(["status<=20010"])
    page.page.locator("#where").fill("status=200")
    page.page.keyboard.press("Enter")
    page.wait_for_count(10)
    assert page.chips() == ["http.response.status_code = 200"]


def test_text_that_is_found_in_the_panel_leaves_the_page_where_it_is(page: Window, client: Client) -> None:
    page.open(f"#/requests?open={the_key(client, 'outcome=ok')}")
    assert page.page.evaluate("window.find('http.response.status_code')")
    assert (
        page.page.evaluate("[...document.querySelectorAll('html, body, #app, main')].map(one => one.scrollTop)")
        == [0] * 4
    )
    place = page.page.locator("header.top").bounding_box()
    assert place is not None
    assert place["y"] == 0
    assert page.page.evaluate("document.scrollingElement.scrollHeight <= innerHeight")


@pytest.mark.parametrize("route", ["#/requests", "#/overview", "#/compare", "#/logging", "#/request/{}"])
def test_nothing_lies_outside_of_the_window(page: Window, client: Client, route: str) -> None:
    page.open(route.format(the_key(client, "outcome=ok")))
    assert page.page.evaluate("document.scrollingElement.scrollHeight <= innerHeight")


def test_arrows_move_in_the_list_as_j_and_k_do(page: Window) -> None:
    page.open()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.page.keyboard.press(key)
    assert page.page.locator(".row").nth(1).get_attribute("aria-selected") == "true"


def test_a_request_without_an_answer_is_waiting_to_its_end(page: Window, client: Client) -> None:
    page.open(f"#/request/{the_key(client, 'outcome=timeout')}")
    expect(page.page.locator(".legend")).to_have_text("waiting 12 s")
    bars = [box(page.page.locator(f"[data-part={part}] rect")) for part in ("request", "waiting")]
    assert bars[0] == bars[1]


def test_a_request_of_0_seconds_has_an_axis_of_a_millisecond(page: Window, client: Client) -> None:
    page.open(f"#/request/{the_key(client, 'outcome=client_disconnect')}")
    expect(page.page.locator(".axis text").last).to_have_text("1 ms")


def test_what_ran_beside_it_is_inside_its_column(page: Window, client: Client) -> None:
    page.open(f"#/request/{the_key(client, 'event_name=websocket.connection')}")
    begin, _ = box(page.page.locator("[data-part=request] rect"))
    _, end = box(page.page.locator(".timeline-plot"))
    neighbours = [box(one) for one in page.page.locator(".neighbour").all()]
    assert neighbours[0][0] == pytest.approx(begin, abs=CLOSE_PX)  # it began before the connection
    assert all(begin - CLOSE_PX <= left < right < end for left, right in neighbours)


def test_gaps_have_a_scale(page: Window, client: Client) -> None:
    page.open(f"#/request/{the_key(client, 'chunks=5')}")
    expect(page.page.locator(".lane", has_text="Gaps").locator(".lane-name b")).to_have_text("≤ 300 ms")
    expect(page.page.locator(".gap-line title")).to_have_text(["300 ms", "150 ms"])


def test_a_gap_that_is_not_drawn_counts_for_the_scale_and_chunks_without_a_time_are_said(
    page: Window, client: Client
) -> None:
    page.open(f"#/request/{the_key(client, 'chunks=9')}")
    expect(page.page.locator(".figures div", has_text="Largest gap").locator("dd")).to_have_text("400 ms")
    expect(page.page.locator(".lane", has_text="Gaps").locator(".lane-name b")).to_have_text("≤ 400 ms")
    said = "The record has the times of the first 5 chunks; the other 4 have none (chunk_timeline_limit)."
    expect(page.page.locator(".timeline-note").first).to_have_text(said)


def test_a_wide_window_has_all_columns_beside_an_open_request(page: Window, client: Client) -> None:
    page.open(f"#/requests?open={the_key(client, 'chunks=9')}")
    heads = page.page.locator(".grid-head [role=columnheader]")
    beside = heads.all_inner_texts()
    page.page.set_viewport_size({"width": 2560, "height": 1300})
    expect(heads.filter(has_text="Tokens out")).to_have_count(1)
    assert len(heads.all_inner_texts()) > len(beside)
    assert page.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    grid = page.page.locator(".grid").evaluate("(grid) => grid.scrollWidth <= grid.clientWidth")
    assert grid, "the list does not scroll sideways"


def test_no_unit_stands_in_braces(page: Window, client: Client) -> None:
    page.open(f"#/request/{the_key(client, 'chunks=5')}")
    text = page.page.locator("main").inner_text()
    assert "5 tokens" in text
    assert "2048 B = 2 KiB" in text
    assert not re.search(r"\{\w+\}", text)
    page.open("#/requests?columns=time,chunks,http.request.body.size,gen_ai.usage.output_tokens")
    assert "5 tokens" in page.page.locator(".grid").inner_text()
    assert not re.search(r"\{\w+\}|By\b", page.page.locator(".grid").inner_text())


def test_the_scale_of_a_comparison_holds_every_ratio(browser: Browser, tmp_path: Path) -> None:
    folders = [tmp_path / "before", tmp_path / "after"]
    for number, (folder, seconds) in enumerate(zip(folders, (0.01, 1.0), strict=True), 1):
        write_segment(folder, [{**whole(one), "duration_s": seconds} for one in range(8)], number=number)
    with shown(folders, tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open("#/compare")
        expect(page.page.locator(".ratio-head").first).to_contain_text("0.00781× to 128×")
        dot = page.page.locator(".w-dot").first
        # 100 times of at most 128: log2(100) / log2(128) of the way from the middle to the right.
        assert dot.evaluate("one => parseFloat(one.style.left)") == pytest.approx(50 + 50 * 6.64 / 7, abs=0.5)


def test_nothing_is_offered_to_compare_where_all_requests_are_alike(browser: Browser, tmp_path: Path) -> None:
    write_segment(tmp_path / "logs", [whole(one) for one in range(3)])
    with shown([tmp_path / "logs"], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open("#/compare")
        expect(page.page.get_by_text("Choose two sides.")).to_be_visible()
        assert page.page.locator(".compare-tools").inner_text() == "Swap A and B"


def test_two_folders_are_a_and_b(browser: Browser, tmp_path: Path) -> None:
    folders = [tmp_path / "before", tmp_path / "after"]
    for number, folder in enumerate(folders, 1):
        write_segment(folder, [streamed(one) if one < number * 2 else whole(one) for one in range(8)], number=number)
    with shown(folders, tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open("#/compare")
        for side, folder in zip("AB", folders, strict=True):
            expect(page.page.get_by_label(f"Folder of {side}")).to_have_value(str(folder))
        expect(page.page.get_by_role("region", name="What differs")).to_contain_text("A 2 of 8, B 4 of 8")
        changed = page.page.get_by_role("region", name="What changed")
        expect(changed).to_contain_text("shares of all requests (A 8, B 8)")
        page.page.get_by_label("Folder of A").select_option("all folders")
        expect(page.page.get_by_role("region", name="Side A")).to_contain_text("16 requests")
