"""Pictures of each page of `inference-logging view`: light, dark and on a phone, of a made folder.

    make screenshots        or: python -m tools.screenshots --out docs/images

The records are those of `view_records.py`, so a picture changes only when a page does. Needs Debian's chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from inference_logging.read.table.table import Table
from inference_logging.read.view.app import Content, View
from inference_logging.read.view.links import parse_link
from inference_logging.read.view.server import Serving, bind
from tests.kit import view_records

MADE_AT: Final = datetime(2026, 11, 24, 15, 0, tzinfo=timezone.utc)
PAGES: Final = {
    "requests": "#/requests?open={stalled}",
    "request": "#/request/{stalled}",
    "overview": "#/overview",
    "compare": "#/compare?a.where=service.version%3D1.4.0&b.where=service.version%3D1.5.0",
    "logging": "#/logging",
}
STALLED: Final = (
    "outcome=ok",
    "engine.queued_s>0.3",
    "chunk_gap_max_us>500000",
    "chunks>40",
    "chunks<200",
    "duration_s<9",
)
"""A request that waited, then stood still once: its timeline has all parts."""
WIDE: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 780}
MOST_BYTES: Final = 150_000


@contextmanager
def served(folder: Path, cache: Path) -> Iterator[tuple[str, Table]]:
    """Serve a folder; give the address and the index."""
    index = Table([folder], None, cache)
    while not index.refresh(1.0)["done"]:
        pass
    link = parse_link("Jaeger=https://jaeger.example.com/trace/{trace_id}")
    serving = Serving(View(index, Content((folder,), None, (link,))), bind("127.0.0.1", 0))
    started = threading.Event()
    thread = threading.Thread(target=serving.run, args=(started.set,))
    thread.start()
    started.wait()
    try:
        yield serving.url, index
    finally:
        serving.stop()
        thread.join()


def settle(page: Page) -> None:
    """Wait until a page has what it shows."""
    page.locator("header.top").wait_for()
    page.wait_for_timeout(300)
    while page.locator(".spinner, .boot, .banner").count():
        page.wait_for_timeout(100)
    page.wait_for_timeout(400)


def pictures(browser: Browser, url: str, stalled: str, out: Path) -> Iterator[Path]:
    """Write the pictures; yield each path."""
    kinds: dict[str, dict[str, Any]] = {"": {"viewport": WIDE}, "-dark": {"viewport": WIDE, "color_scheme": "dark"},
                                        "-phone": {"viewport": PHONE, "has_touch": True}}  # fmt: skip
    for kind, options in kinds.items():
        context = browser.new_context(**{"reduced_motion": "reduce", "color_scheme": "light", **options})
        for name, route in PAGES.items():
            given = "#/requests" if name == "requests" and kind == "-phone" else route
            page = context.new_page()
            page.goto(url + given.format(stalled=quote(stalled, safe="")))
            settle(page)
            path = out / f"view-{name}{kind}.png"
            page.screenshot(path=path)
            page.close()
            # Pages have few colours: a palette of them is a third of the size.
            with Image.open(path) as picture:
                picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, 8, dither=Image.Dither.NONE).save(
                    path, optimize=True
                )
            yield path
        context.close()


def main() -> None:
    """Make the folder, serve it, look at each page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "logs"
        view_records.make(folder, 6000, 1800.0, MADE_AT)
        with served(folder, Path(temporary) / "cache") as (url, index), sync_playwright() as playwright:
            query = {"where": STALLED, "events": ["request"], "order": "-duration_s", "limit": 1}
            stalled = index.rows(query)["rows"][0]["key"]
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            for path in pictures(browser, url, stalled, given.out):
                size = path.stat().st_size
                sys.stdout.write(f"{path}  {size / 1000:.0f} kB{'  TOO LARGE' if size > MOST_BYTES else ''}\n")
            browser.close()


if __name__ == "__main__":
    main()
