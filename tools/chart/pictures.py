"""Draw every panel of the dashboard from a real load: ``python -m tools.chart.pictures OUT [--sheet FILE]``.

Grafana is not needed: a page of ours draws with uPlot what Prometheus answers to Grafana's questions. In OUT are
one PNG for each panel and ``dashboard.png``, the sheet of all.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.chart.chart import CHART
from tests.chart.prometheus import Prometheus
from tests.chart.watched import Watched, watched

HERE: Final = Path(__file__).parent / "pictures"
UPLOT: Final = CHART.parent / "inference_logging" / "read" / "pages" / "static" / "vendor" / "uplot"
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
VARIABLES: Final = ("namespace", "service", "pod", "model", "operation", "route")
WIDTH: Final = 1440
SCRAPE_S: Final = 5
COLOURS: Final = 160


@dataclass(frozen=True)
class Span:
    """The time that the dashboard shows, as Grafana asks for it."""

    start: float
    end: float
    step: float
    scrape: float

    @classmethod
    def until(cls, now: float, seconds: float, scrape: float) -> Span:
        """Return the last ``seconds``, in about 150 steps of whole seconds, as Grafana aligns them."""
        step = max(scrape, round(seconds / 150))
        end = math.floor(now / step) * step
        return cls(end - round(seconds / step) * step, end, step, scrape)

    def filled_in(self, expression: str) -> str:
        """Return the expression with its variables: all are chosen."""
        for name in VARIABLES:
            expression = expression.replace(f"${name}", ".*")
        rate = max(self.step + self.scrape, 4 * self.scrape)
        return expression.replace("$__rate_interval", f"{rate:g}s")


def answers(prometheus: Prometheus, dashboard: dict[str, Any], span: Span) -> dict[str, Any]:
    """Return what each panel shows, by its number."""
    asked = [one for one in dashboard["annotations"]["list"] if "expr" in one]
    notes = [found for one in asked if (found := _note(prometheus, one, span))]
    return {
        panel["id"]: {**_panel(prometheus, panel, span), "annotations": notes}
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }


def _panel(prometheus: Prometheus, panel: dict[str, Any], span: Span) -> dict[str, Any]:
    times = [span.start + place * span.step for place in range(round((span.end - span.start) / span.step) + 1)]
    series, exemplars = [], []
    for target in panel["targets"]:
        expression = span.filled_in(target["expr"])
        for one in _ranged(prometheus, expression, span.start, span.end, span.step):
            values = {round((float(at) - span.start) / span.step): float(value) for at, value in one["values"]}
            column = [_number(values.get(place)) for place in range(len(times))]
            series.append({"name": _legend(target["legendFormat"], one["metric"]), "values": column})
        if target["exemplar"]:
            found = prometheus.ask("query_exemplars", query=expression, start=span.start, end=span.end)
            exemplars += [(float(ex["timestamp"]), float(ex["value"])) for one in found for ex in one["exemplars"]]
    shown = {"series": series, "exemplars": _sampled(exemplars, span.step)}
    return {"x": times, "from": span.start, "to": span.end, "step": span.step} | shown


def _note(prometheus: Prometheus, annotation: dict[str, Any], span: Span) -> dict[str, Any] | None:
    """Return when an annotation is shown: samples of one step after the other are one."""
    step = float(annotation["step"].removesuffix("s"))
    start = math.floor(span.start / step) * step
    times = []
    for one in _ranged(prometheus, span.filled_in(annotation["expr"]), start, span.end, step):
        at = [float(at) for at, _ in one["values"]]
        begins = [time for place, time in enumerate(at) if place == 0 or time - at[place - 1] > step]
        ends = [time for place, time in enumerate(at) if place == len(at) - 1 or at[place + 1] - time > step]
        times += [pair for pair in zip(begins, ends, strict=True) if pair[1] >= span.start]
    return {"name": annotation["name"], "colour": annotation["iconColor"], "times": times} if times else None


def _ranged(prometheus: Prometheus, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
    answer = prometheus.ask("query_range", query=expression, start=start, end=end, step=step)
    found: list[dict[str, Any]] = answer["result"]
    return found


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _legend(form: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda name: labels.get(name[1], ""), form).strip()


@contextmanager
def drawn(dashboard: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[Page, list[str]]]:
    """Draw all panels in a browser; yield its page, and which panels could not be drawn."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed (on Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
            page.set_content("<!doctype html><title>Dashboard</title>")
            for style in (UPLOT / "uPlot.min.css", HERE / "pictures.css"):
                page.add_style_tag(path=style)
            for script in (UPLOT / "uPlot.iife.min.js", HERE / "pictures.js"):
                page.add_script_tag(path=script)
            texts = {str(number): one for number, one in found.items()}
            problems = page.evaluate("([panels, found]) => dashboard(panels, found)", [dashboard["panels"], texts])
            # uPlot draws in a microtask, its bars in a frame.
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            yield page, problems + [f"{title}: nothing is drawn" for title in page.evaluate("() => blank()")]
        finally:
            browser.close()


def _write(page: Page, dashboard: dict[str, Any], out: Path) -> bytes:
    """Write a picture of each panel; return the sheet."""
    out.mkdir(parents=True, exist_ok=True)
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            name = re.sub(r"\W+", "-", panel["title"].lower()).strip("-")
            page.locator(f"#panel-{panel['id']}").screenshot(path=out / f"{panel['id']:02}-{name}.png")
    return page.screenshot(full_page=True)


def _small(picture: bytes) -> bytes:
    """Return a PNG of few colours."""
    made = io.BytesIO()
    reduced = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(made, "PNG", optimize=True)
    return made.getvalue()


def _happen(seen: Watched, seconds: float) -> None:
    """Let what the panels are for happen: a deploy, a listener that hangs, and a sink that nobody reads any more."""
    # Until then everything is new, which is marked.
    time.sleep(130 + seconds * 0.3)
    with seen.completions("completions-1"):
        time.sleep(seconds * 0.3)
        seen.lose_records()
        time.sleep(seconds * 0.1)
        seen.lose_copies()
        time.sleep(seconds * 0.2)


def _sampled(exemplars: list[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    """Return the exemplars that Grafana keeps of so many: in each step those that lie two deviations apart."""
    if len(exemplars) < 2:
        return exemplars
    apart, kept = 2 * statistics.stdev(value for _, value in exemplars), []
    for _, some in itertools.groupby(sorted(exemplars), lambda one: one[0] // step):
        last = math.inf
        for at, value in sorted(some, key=lambda one: -one[1]):
            if last - value >= apart:
                kept.append((at, value))
                last = value
    return kept


def main(arguments: list[str] | None = None) -> int:
    """Run a load, draw it, and write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="where the pictures are written")
    parser.add_argument("--sheet", type=Path, help="also write the sheet in few colours here")
    parser.add_argument("--seconds", type=float, default=300, help="how long the load lasts")
    given = parser.parse_args(arguments)
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as directory, watched(Path(directory), f"{SCRAPE_S}s", clients=2) as seen:
        _happen(seen, given.seconds)
        found = answers(seen.prometheus, dashboard, Span.until(time.time(), given.seconds, SCRAPE_S))
    with drawn(dashboard, found) as (page, problems):
        sheet = _write(page, dashboard, given.out)
    (given.out / "dashboard.png").write_bytes(sheet)
    if given.sheet:
        given.sheet.parent.mkdir(parents=True, exist_ok=True)
        given.sheet.write_bytes(_small(sheet))
    sys.stdout.write("\n".join((f"{len(found)} panels in {given.out}", *problems, "")))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
