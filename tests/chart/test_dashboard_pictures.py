"""The pictures of the dashboard: each kind of panel is drawn, and what is not drawn is named."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.chart.test_dashboard import DASHBOARD, PANELS
from tests.kit.browser import needs_browser
from tools.chart.pictures import drawn

pytestmark = [pytest.mark.chart, needs_browser]

TIMES = [1000.0 + step for step in range(30)]
KINDS = {panel["type"]: panel for panel in reversed(PANELS)}


def answer(*series: tuple[str, float | None], exemplars: int = 0) -> dict[str, Any]:
    """Return what Prometheus would have answered: series with one value all the time."""
    named = [{"name": name, "values": [value] * len(TIMES)} for name, value in series]
    marks = [{"name": "Deploys", "colour": "blue", "times": [[1010.0, 1015.0]]}]
    points = [(1000.0 + number, 0.3) for number in range(exemplars)]
    found = {"x": TIMES, "from": TIMES[0], "to": TIMES[-1], "step": 1.0, "series": named}
    return {**found, "exemplars": points, "annotations": marks}


def test_each_kind_of_panel_is_drawn_and_one_without_data_or_colour_is_named() -> None:
    assert set(KINDS) == {"stat", "timeseries", "heatmap", "state-timeline"}
    empty, grey = itertools.islice((one for one in PANELS if one["type"] == "heatmap" and one not in KINDS.values()), 2)
    found = {
        KINDS["stat"]["id"]: answer(("requests", 12.0)),
        KINDS["timeseries"]["id"]: answer(("p50", 0.2), ("p99", 3.0)),
        KINDS["heatmap"]["id"]: answer(("0.1", 1.0), ("0.5", 4.0), ("+Inf", 4.0), exemplars=3),
        KINDS["state-timeline"]["id"]: answer(("a", 0), ("b", 4)),
        empty["id"]: answer(),
        grey["id"]: answer(("0.1", 0.0), ("+Inf", 0.0)),
    }
    panels = [panel for panel in PANELS if panel["id"] in found]
    with drawn({**DASHBOARD, "panels": panels}, found) as (page, problems):
        assert problems[0] == f"{empty['title']}: no data"
        assert {problem for problem in problems[1:] if "nothing is drawn" in problem} == {
            f"{one['title']}: nothing is drawn" for one in (empty, grey)
        }
        stat = page.locator(f"#panel-{KINDS['stat']['id']} .number")
        assert stat.text_content() == "12 req/s"
        assert "3 exemplars" in str(page.locator(f"#panel-{KINDS['heatmap']['id']} .scale").text_content())
