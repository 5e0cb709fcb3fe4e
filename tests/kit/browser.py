"""A real browser: what a person would see of a page, not what stands in its source."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs chromium (on Debian: apt-get install chromium); `make test` installs it where it can"
)
DESK, PHONE = 1100, 390

DRAWN = """() => [...document.querySelectorAll('figure')].map(figure => {
  const probe = document.body.appendChild(document.createElement('i'));
  const rgb = colour => {
    probe.style.color = colour;
    return getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
  };
  const colours = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'bad', 'quiet'].map(n => rgb(`var(--${n})`));
  const near = (data, at) => colours.some(c => c.every((part, i) => Math.abs(part - data[at + i]) < 6));
  let marks = figure.querySelectorAll('.bars-bar, .bars-dot').length;
  for (const canvas of figure.querySelectorAll('canvas')) {
    const over = canvas.parentElement.querySelector('.u-over'), ratio = devicePixelRatio;
    const {data} = canvas.getContext('2d').getImageData(over.offsetLeft * ratio, over.offsetTop * ratio,
      over.offsetWidth * ratio, over.offsetHeight * ratio);
    for (let at = 0; at < data.length; at += 4) marks += data[at + 3] > 30 && near(data, at);
  }
  probe.remove();
  const box = figure.querySelector('.plot').getBoundingClientRect();
  return {name: figure.getAttribute('aria-label'), words: figure.querySelector('figcaption p').textContent,
    kind: figure.querySelector('.plot').dataset.kind, width: box.width, height: box.height, marks};
})"""
"""Each plot: its name, words, kind and size, and its marks in the colours of data: pixels, or elements of bars."""

CONTRAST = """() => {
  const probe = document.body.appendChild(document.createElement('i'));
  const light = colour => {
    probe.style.color = colour;
    const [r, g, b] = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number)
      .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const against = colour => { const ink = light(colour);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); };
  const found = {paper,
    text: Math.min(...[...document.querySelectorAll('h1, h2, h3, p, td, th, dt, dd, small, .plot *')]
      .map(e => against(getComputedStyle(e).color))),
    labels: against('var(--quiet)'),
    marks: Math.min(...['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'bad', 'warn']
      .map(n => against(`var(--${n})`)))};
  probe.remove();
  return found;
}"""
"""The brightness of the page; the least contrast of its text, of labels on a canvas, and of the colours of data."""

FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@contextmanager
def browser() -> Iterator[Page]:
    """Run a browser with a page of ``DESK`` width. One at a time: Playwright's interface has one loop in a thread."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=flags)
        try:
            yield running.new_context(viewport={"width": DESK, "height": 900}).new_page()
        finally:
            running.close()


def is_readable(page: Page, *, least: float = 4.5) -> None:
    """Assert WCAG 2.2, level AA, in light and in dark: text, labels, and marks (3, the level's figure for graphics)."""
    papers = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        contrast = page.evaluate(CONTRAST)
        assert contrast["text"] >= least, (scheme, contrast)
        assert contrast["labels"] >= least, (scheme, contrast)
        assert contrast["marks"] >= 3, (scheme, contrast)
        papers.append(contrast["paper"])
    assert papers[0] < 0.05
    assert papers[1] > 0.9


def wait_until_fits(page: Page) -> None:
    """Wait until the page does not scroll sideways: its plots follow a new width a moment later."""
    page.wait_for_function(FITS)


def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with the page as it is now: rule and element."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]
