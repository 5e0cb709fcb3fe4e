"""The keyboard of the pages of `view`: each command of the help does what the help says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.segment_files import request, write_segment
from tests.view_browser import Window, needs_chromium, shown, window
from tests.view_server import Client

pytestmark = [pytest.mark.servers, needs_chromium]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    write_segment(directory, [request(second) for second in range(1, 40)])
    with shown([directory], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, client: Client) -> Iterator[Window]:
    with window(browser, client.serving.url) as made:
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
