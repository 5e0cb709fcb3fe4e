"""The plot of one quantity that grows: the cost with its interval, and the same work without logging beside it."""

from __future__ import annotations

from inference_logging.prove.bench.figures import bytes_text, time_text
from inference_logging.prove.bench.plots import estimates
from inference_logging.prove.bench.series import Series
from inference_logging.read.pages.content import Plot, is_wide


def growth_plot(series: Series) -> Plot:
    """Return the plot of a series."""
    points = series["points"]
    costs, control = estimates(points), estimates([point["control"] for point in points])
    lines = [{"name": "with logging", **costs}, {"name": series["control_title"], "colour": "quiet", **control}]
    listed = (
        f"{_place_text(series, point['x'])}: {time_text(point['value'])}, "
        f"without {time_text(point['control']['value'])}"
        for point in points
    )
    places = [point["x"] for point in points]
    data = {
        "x": places, "xTicks": places, "xUnit": "B" if series["name"] == "record-bytes" else "1", "xLog": True,
        "xTitle": series["x_title"], "series": lines, "unit": "ns", "yTitle": series["y_title"],
        "log": is_wide([*costs["values"], *control["values"]]),
    }  # fmt: skip
    words = f"{series['sentence']} {'; '.join(listed)}."
    return Plot(f"growth-{series['name']}", series["title"], words, "lines", data)


def _place_text(series: Series, place: int) -> str:
    return bytes_text(place) if series["name"] == "record-bytes" else f"{place:,}"
