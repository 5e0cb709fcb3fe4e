"""The pages of `view` for everybody: judged by axe, light, dark, on a phone, whole without a network, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

import inference_logging
from tests.kit import view_records
from tests.kit.segment_files import request, write_segment
from tests.kit.view_browser import Window, needs_chromium, shown, window
from tests.kit.view_server import Client

pytestmark = [pytest.mark.servers, needs_chromium]

STATIC = [Path(inference_logging.__file__).parent / "read" / name / "static" for name in ("view", "pages")]
MOST_BYTES = 1_000_000
VIOLATIONS = {"resultTypes": ["violations"]}
# Dark pages differ in their colours alone.
COLORS = {**VIOLATIONS, "runOnly": ["color-contrast"]}
PAGES = {
    "requests": "#/requests", "filtered": "#/requests?where=outcome%21%3Dok&text=chat",
    "overview": "#/overview", "compare": "#/compare?a.where=k8s.pod.name%3Dchat-0&b.where=k8s.pod.name%3Dchat-1",
    "logging": "#/logging", "request": "#/request/{key}", "panel": "#/requests?open={key}",
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    view_records.make(directory, 60, 300.0, datetime.now(timezone.utc))
    with shown([directory], tmp_path_factory.mktemp("cache")) as made:
        yield made


def routes(client: Client) -> dict[str, str]:
    key = client.rows(where=["outcome=error"], events=["request"], limit=1)[0]["key"]
    return {name: route.format(key=quote(key, safe="")) for name, route in PAGES.items()}


def violations(page: Window) -> list[Any]:
    """Return what axe finds on the page as it stands, light and dark."""
    found = Axe().run(page.page, options=VIOLATIONS).response["violations"]
    page.page.emulate_media(color_scheme="dark")
    found += Axe().run(page.page, options=COLORS).response["violations"]
    page.page.emulate_media(color_scheme="light")
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found]


def test_axe_finds_nothing_on_any_page_light_or_dark(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url, reduced_motion="reduce") as page:
        faults = {}
        for name, route in routes(client).items():
            page.open(route)
            faults[name] = violations(page)
        page.open("#/requests")
        page.page.keyboard.press("?")
        faults["help"] = violations(page)
    assert not any(faults.values()), faults


def test_no_page_is_wider_than_a_phone_and_each_shows_its_content(browser: Browser, client: Client) -> None:
    lists, timelines = (
        dict.fromkeys(("requests", "filtered"), ".card"),
        dict.fromkeys(("request", "panel"), ".timeline svg"),
    )
    content = {**lists, **timelines, "overview": ".tiles", "compare": ".ratios", "logging": ".card-plot"}
    with window(browser, client.serving.url, phone=True, has_touch=True) as page:
        for name, route in routes(client).items():
            page.open(route)
            expect(page.page.locator(content[name]).first).to_be_visible()
            page.wait_until_fits()


def test_a_tap_on_a_phone_opens_the_request_as_a_page(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url, phone=True, has_touch=True) as page:
        page.open("#/requests")
        page.rows().first.tap()
        expect(page.page.locator(".request-page h2")).to_be_visible()


def test_the_theme_is_chosen_and_kept(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open("#/requests")
        light = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        for _ in range(2):  # from the system's to light to dark
            page.page.get_by_role("button", name=re.compile("Theme")).click()
        assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        page.open("#/overview")
        assert page.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_region_of_a_heat_map_is_a_filter(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open("#/overview")
        plot = page.page.locator("[data-kind=heatmap] .u-over").first
        place = plot.bounding_box()
        assert place is not None
        page.page.mouse.move(place["x"] + place["width"] * 0.2, place["y"] + place["height"] * 0.2)
        page.page.mouse.down()
        page.page.mouse.move(place["x"] + place["width"] * 0.7, place["y"] + place["height"] * 0.8, steps=4)
        page.page.mouse.up()
        expect(page.page.locator(".chip")).to_have_count(2)
        assert [text.split()[:2] for text in page.page.locator(".chip-text").all_inner_texts()] == [
            ["duration_s", ">="], ["duration_s", "<"],
        ]  # fmt: skip
        assert "from=" in page.hash
        assert "to=" in page.hash


def test_all_files_together_are_small_and_name_no_other_server() -> None:
    files = [path for folder in STATIC for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    own = [path for path in files if "vendor" not in path.parts and path.suffix in (".js", ".css", ".html")]
    assert own
    for path in own:
        text = path.read_text()
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path
        loads = re.findall(r"""(?:src|href|from|import|url)\s*[=(]?\s*["'(](https?:)?//""", text)
        assert loads == [], path


@pytest.fixture(scope="module")
def keyboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    write_segment(directory, [request(second) for second in range(1, 40)])
    with shown([directory], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, keyboard: Client) -> Iterator[Window]:
    with window(browser, keyboard.serving.url) as made:
        made.open("#/requests")
        yield made


def current(page: Window) -> str:
    """Return the time of the row that the keyboard is on."""
    return page.page.locator(".row.current .c-time").inner_text()


def press(page: Window, *keys: str) -> None:
    for key in keys:
        page.page.keyboard.press(key)


def test_the_help_names_each_command_and_escape_closes_it(page: Window) -> None:
    press(page, "?")
    keys = [" ".join(text.split()) for text in page.page.locator("dialog tbody th").all_inner_texts()]
    tested = ["/", "t", "j", "k", "Enter", "o", "Esc", "p", "x", "g r", "g o", "g c", "g l", "?"]
    assert keys == tested
    press(page, "Escape")
    expect(page.page.locator("dialog")).to_have_count(0)


def test_slash_goes_to_the_filter_and_t_to_the_text(page: Window) -> None:
    press(page, "/")
    expect(page.page.locator("#where")).to_be_focused()
    page.page.keyboard.type("j?p")
    expect(page.page.locator("#where")).to_have_value("j?p")  # what is typed is no command
    press(page, "Escape", "t")
    expect(page.page.locator("#text")).to_be_focused()


def test_j_and_k_move_enter_opens_and_escape_closes(page: Window) -> None:
    press(page, "j", "j", "j")
    assert current(page) == "05:00:37.000"
    press(page, "k")
    assert current(page) == "05:00:38.000"
    press(page, "Enter")
    expect(page.page.locator(".panel h2")).to_be_visible()
    press(page, "j")
    expect(page.page.locator(".panel .request-head")).to_contain_text(
        "05:00:36.5"
    )  # arrived half a second before its end
    press(page, "Escape")
    expect(page.page.locator(".panel")).to_have_count(0)
    assert current(page) == "05:00:37.000"


def test_o_opens_the_request_as_a_page_and_escape_goes_back(page: Window) -> None:
    press(page, "j", "o")
    expect(page.page.locator(".request-page h2")).to_be_visible()
    press(page, "Escape")
    expect(page.rows().first).to_be_visible()


def test_p_pauses_and_goes_on(page: Window) -> None:
    press(page, "p")
    expect(page.page.get_by_role("button", name="Resume")).to_be_visible()
    press(page, "p")
    expect(page.page.get_by_role("button", name="Pause")).to_be_visible()


def test_x_removes_the_conditions(page: Window) -> None:
    page.open("#/requests?where=outcome%3Dok&where=pid%3D1&text=chat")
    expect(page.page.locator(".chip")).to_have_count(2)
    press(page, "x")
    expect(page.page.locator(".chip")).to_have_count(0)
    expect(page.page.locator("#text")).to_have_value("")


@pytest.mark.parametrize(("key", "name"), [("o", "Overview"), ("c", "Compare"), ("l", "Logging"), ("r", "Requests")])
def test_g_and_a_letter_go_to_a_page(page: Window, key: str, name: str) -> None:
    page.open("#/logging" if key == "r" else "#/requests")
    press(page, "g", key)
    expect(page.page.locator("nav a[aria-current]")).to_have_text(name)


def test_the_timeline_zooms_by_keys(page: Window) -> None:
    press(page, "j", "o")
    bar = page.page.locator("[data-part=request] rect")
    page.page.locator(".timeline-plot").focus()
    width = float(bar.get_attribute("width") or 0)
    press(page, "+")
    expect(bar).not_to_have_attribute("width", str(width))
    assert float(bar.get_attribute("width") or 0) == pytest.approx(2 * width, rel=0.01)
    press(page, "Home")
    expect(bar).to_have_attribute("width", bar.get_attribute("width") or "")
    assert float(bar.get_attribute("width") or 0) == pytest.approx(width, rel=0.01)
