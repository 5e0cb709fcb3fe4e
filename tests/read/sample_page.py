"""A page with each kind of plot and a table, whose names are hostile: what tests of the generator look at."""

from __future__ import annotations

import re

from inference_logging.read.pages import page
from inference_logging.read.pages.content import SHARES, Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, headline, paragraph, table_of

HOSTILE = (
    "</script><img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script> \u202eevil & 模型"
)
"""A name that ends elements, loads an image, runs a script and turns the line around, wherever it is not text."""
VISIBLE = HOSTILE.replace("\u202e", "\\u202e")
BEGIN_S = 1_795_532_400
"""2026-11-24 15:00:00 UTC"""
SECONDS = 60
X = [BEGIN_S + second for second in range(SECONDS + 1)]
RISING = [10 ** (second / 20) * 1e-3 for second in range(SECONDS + 1)]
"""From 1 ms to 1 s: a straight line on a logarithmic axis."""
EDGES = [0.001 * 2**power for power in range(9)]
COUNTS = [1, 2, 4, 8, 16, 8, 4, 2]


def plots() -> list[Plot]:
    """Return a plot of each kind."""
    flat = [0.0005] * len(X)
    lines = {
        "x": X, "unit": "s", "log": True,
        "series": [{"name": "rising", "values": RISING}, {"name": HOSTILE, "values": flat}],
    }  # fmt: skip
    stacked = {
        "x": X[:-1], "width": 1, "unit": "1/s", "style": "bars", "stacked": True,
        "series": [{"name": "ok", "values": [20] * SECONDS}, {"name": "not ok", "values": [2.5] * SECONDS}],
    }  # fmt: skip
    cells = [[count * (bucket + 1) for count in COUNTS] for bucket in range(10)]
    heat = {"x": X[:50:5], "width": 5, "edges": EDGES, "cells": cells, "unit": "s", "cellUnit": "{request}"}
    times = {"unit": "s", "series": [{"name": "duration", "edges": EDGES, "counts": COUNTS}]}
    bars = {
        "labels": ["/v1/chat", HOSTILE, "/health"], "unit": "{token}",
        "series": [{"name": "input", "values": [4000, 1, 0]}, {"name": "output", "values": [1234, None, 5]}],
    }  # fmt: skip
    dots = {
        "labels": ["ours", "other"], "ours": ["ours"], "unit": "s", "mark": "dot", "log": True,
        "series": [{"name": "p50", "values": [0.01, 1.0], "low": [0.009, 0.9], "high": [0.02, 1.1]}],
    }  # fmt: skip
    return [
        Plot("lines", "Lines", "A line that rises from 1 ms to 1 s.", "lines", lines),
        Plot("stacked", "Stacked", "22.5 requests per second.", "lines", stacked),
        Plot("heat", "Heat", "More and more.", "heatmap", heat),
        Plot("times", "Times", "Around 20 ms.", "distribution", times, SHARES),
        Plot("bars", "Bars", "4,000 tokens.", "bars", bars),
        Plot("dots", "Dots", "10 ms and 1 s.", "bars", dots),
    ]


def table() -> Table:
    """Return a table that can be sorted and filtered, with figures in several units."""
    values = ("12 ms", "1.5 s", "900 µs", "–", "2 s", "70 ns", "1,200 s")
    names = (HOSTILE, "beta", "gamma", "delta", "alpha-2", "alpha-10", "epsilon")
    return Table("Rows", ("name", "time"), [(name, f"{value}\n± 1") for name, value in zip(names, values, strict=True)])


def sample() -> str:
    """Return the page."""
    sections = [Section(plot.title, [figure(plot)]) for plot in plots()]
    last = Section("Rows", [table_of(table())])
    intro = [paragraph(HOSTILE), headline([("Requests", "200"), (HOSTILE, HOSTILE)])]
    return page.document(f"A page of {HOSTILE}", intro, [*sections, last])


def body_of(source: str) -> str:
    """Return what a page has beside its own style and scripts."""
    return re.sub(r"<(style|script)>.*?</\1>", "", source, flags=re.DOTALL)
