"""Texts of strangers on the pages of `view`: HTML, escapes of terminals, right-to-left overrides, 1 MB: all is text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.segment_files import log, request, write_segment
from tests.kit.view_browser import PHONE, WIDE, Window, needs_chromium, shown, window
from tests.kit.view_server import Client

pytestmark = [pytest.mark.servers, needs_chromium]

IMAGE = "<img src=x onerror=\"window.hacked='image'\">"
SCRIPT = "</script><script>window.hacked='script'</script><b>bold</b>{{7*7}}${window.hacked=1}"
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x00\x9b2J\r\u2028"
OVERRIDE = "user\u202efdp.exe\u2066\u2069\u200f\ufeff\U000e0041"
LONG = "x" * 5000
MEGABYTE = ("<b>&amp;\u202e\x1b[2J " + "y" * 1000 + "\n") * 1000
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\u2028\U000e0041]")
IDS = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "00000000000000aa"}
COMPARE = "#/compare?a.where=outcome%3Dok&b.where=outcome%3Derror"
PAGES = ("#/requests", "#/overview", "#/overview?by=tenant.id", COMPARE, "#/logging")

HOSTILE: dict[str, Any] = {
    **IDS, "outcome": "error", "tenant.id": IMAGE, "http.route": OVERRIDE, "url.path": ESCAPES, "error.type": SCRIPT,
    "gen_ai.request.model": LONG, "http.request.method": IMAGE, "http.response.status_code": "<i>200</i>",
    "exception.type": SCRIPT, "exception.message": OVERRIDE + IMAGE, "exception.stacktrace": MEGABYTE,
    "gen_ai.input.messages": [
        {"role": IMAGE, "parts": [{"type": SCRIPT, "content": MEGABYTE}]}, None, 7, [[SCRIPT]],
        {"role": "user", "parts": "no list"}, {"parts": [{"type": "image", "content": {"uri": "javascript:alert(1)"}}]},
    ],
    "gen_ai.output.messages": {"dangerouslySetInnerHTML": {"__html": IMAGE}},
    "chunk_gaps_us": ["1", None, {}], "engine.queued_s": "long", "severity_text": IMAGE,
    "attributes": {
        IMAGE: SCRIPT, "__proto__": {"polluted": True}, "constructor": OVERRIDE, "a" * 3000: {"b": [ESCAPES]},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("logs")
    inside = log(9.8, SCRIPT + ESCAPES + LONG, **IDS, severity_text=IMAGE, attributes={OVERRIDE: IMAGE})
    lost = {**log(9), "event_name": "log.dropped", "dropped": 3, "reasons": {IMAGE: {SCRIPT: 3}}}
    usual = [request(second, "ok", duration_s=0.2) for second in range(1, 8)]
    hostile = {**request(10, "error"), **HOSTILE}
    write_segment(directory, [*usual, lost, inside, hostile], resource={"k8s.pod.name": IMAGE + OVERRIDE})
    with shown([directory], tmp_path_factory.mktemp("cache")) as made:
        yield made


def key_of(client: Client) -> str:
    key: str = client.rows(where=[f"request_id={IDS['request_id']}"], events=["request"])[0]["key"]
    return key


def is_inert(page: Window) -> None:
    """Assert that nothing of the texts has become part of the page, and that what is invisible can be seen."""
    found = page.page.evaluate("""() => ({
      hacked: window.hacked, polluted: ({}).polluted, text: document.body.innerText,
      foreign: document.querySelectorAll('#app script, #app img, #app iframe, #app b.bold, #app [onerror]').length,
      links: [...document.links].filter(link => !/^https?:/.test(link.protocol)).length,
      attributes: [...document.querySelectorAll('#app *')].flatMap(element => element.getAttributeNames())
        .filter(name => /^on/.test(name)).length})""")
    text = found.pop("text")
    assert found == {"hacked": None, "polluted": None, "foreign": 0, "links": 0, "attributes": 0}
    assert INVISIBLE.search(text) is None, INVISIBLE.findall(text)


def test_hostile_texts_are_inert_and_keep_the_layout_on_each_page(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        for route in (*PAGES, f"#/request/{quote(key_of(client), safe='')}"):
            page.open(route)
            for size in (WIDE, PHONE):
                page.page.set_viewport_size(size)
                is_inert(page)
                page.wait_until_fits()
                heights = {box["height"] for one in page.rows().all() if (box := one.bounding_box())}
                assert len(heights) <= 1, "one row is higher than the others"
            page.page.set_viewport_size(WIDE)


def test_html_stands_there_as_text_and_an_override_as_its_number(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open("#/requests")
        expect(page.rows().first.locator(".c-tenant")).to_have_text(IMAGE)
        page.open(f"#/requests?open={quote(key_of(client), safe='')}")
        panel = page.page.locator(".panel")
        expect(panel.locator(".fields")).to_contain_text(IMAGE)
        expect(panel.locator("h2")).to_contain_text("user⟨U+202E⟩fdp.exe⟨U+2066⟩⟨U+2069⟩")
        expect(panel.locator(".fields")).to_contain_text("␛[31mred")
        is_inert(page)


def test_a_megabyte_is_cut_and_its_button_shows_the_rest(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open(f"#/request/{quote(key_of(client), safe='')}")
        text = page.page.locator(".messages .long").first
        shown_first = len(text.locator(".long-text").inner_text())
        assert shown_first < 3000
        text.get_by_role("button", name="show all, 1.01 M characters").click()
        whole = text.locator(".long-text").inner_text()
        assert whole.count("y" * 1000) == 1000
        page.wait_until_fits()
        is_inert(page)


def test_a_hostile_value_becomes_a_condition_that_finds_it_again(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open("#/requests")
        page.rows().first.locator(".c-tenant .value").click()
        expect(page.page.locator(".chip")).to_have_count(1)
        page.settle()
        page.wait_for_count(1)
        is_inert(page)
