"""The page of `view` in a real browser: a server on made segments, and the window that a person would look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, ViewportSize, expect, sync_playwright

from inference_logging.read.table.table import Table
from inference_logging.read.view.links import parse_link
from tests.kit.view_server import Client, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs chromium (on Debian: apt-get install chromium); `make test` installs it where it can",
)
# A machine with few cores has other work as well; nothing here proves a speed.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 800}


class Window:
    """A window on the page; what its console says against the page fails the test."""

    def __init__(self, page: Page, url: str) -> None:
        """Look at the page at ``url``."""
        self.page, self.url = page, url
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._note)

    def _note(self, line: ConsoleMessage) -> None:
        if line.type == "error":
            self.faults.append(line.text)

    def open(self, route: str = "#/requests") -> None:
        """Open a route, and wait until nothing is loading."""
        # A route that differs in its hash alone is no navigation for the browser.
        self.page.goto("about:blank")
        self.page.goto(self.url + route)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is there and nothing is loading."""
        self.page.locator("header.top").wait_for()
        self.page.wait_for_load_state()
        self.page.locator(".spinner, .boot").first.wait_for(state="hidden")
        while self.page.locator(".spinner, .boot").count():
            self.page.locator(".spinner, .boot").first.wait_for(state="hidden")

    @property
    def hash(self) -> str:
        """The route, as the address has it."""
        return self.page.url.partition("#")[2]

    def chips(self) -> list[str]:
        """Return the conditions that stand above the list."""
        return [" ".join(text.split()) for text in self.page.locator(".chip-text").all_inner_texts()]

    def rows(self) -> Locator:
        """Return the rows of the list that are in view."""
        return self.page.locator(".grid-body [role=row]")

    def count(self) -> int:
        """Return how many requests the page says match, once it knows."""
        self.page.locator(".list-count:not([data-unknown])").wait_for()
        return int(self.page.locator(".list-count b").inner_text().replace(",", "").rstrip("+"))

    def wait_for_count(self, matched: int) -> None:
        """Wait until the page says that so many requests match; until then it shows how many did before."""
        expect(self.page.locator(".list-count:not([data-unknown]) b")).to_have_text(f"{matched:,}")

    def wait_until_fits(self) -> None:
        """Wait until the page is no wider than the window."""
        self.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the machine's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def window(browser: Browser, url: str, *, phone: bool = False, dark: bool = False, **more: Any) -> Iterator[Window]:
    """Open a window of its own storage. Raises AssertionError at the end if the console complained."""
    context = browser.new_context(viewport=PHONE if phone else WIDE, color_scheme="dark" if dark else "light", **more)
    context.set_default_timeout(PATIENCE_MS)
    try:
        opened = Window(context.new_page(), url)
        yield opened
        assert not opened.faults, opened.faults
    finally:
        context.close()


@contextmanager
def shown(directories: Sequence[Path], cache: Path) -> Iterator[Client]:
    """Serve directories with their table."""
    link = parse_link("Jaeger=https://jaeger.example.com/trace/{trace_id}")
    with serving(directories, Table(directories, None, cache), [link]) as client:
        yield client


def append(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Append records to a live segment, as the listener does: whole lines by one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, b"".join(orjson.dumps(record) + b"\n" for record in records))
    finally:
        os.close(descriptor)


CLOSE_PX = 1.0


def box(found: Locator) -> tuple[float, float]:
    """Return where an element begins and ends, in pixels from the left."""
    place = found.bounding_box()
    assert place is not None
    return place["x"], place["x"] + place["width"]
