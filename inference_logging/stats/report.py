"""The page of `stats --html`: one file that loads nothing, readable in light and dark, and without seeing the plots."""

from __future__ import annotations

from pathlib import Path

from inference_logging.stats import document
from inference_logging.stats.counts import Counts
from inference_logging.stats.document import figure, table_of, text
from inference_logging.stats.plots import plots
from inference_logging.stats.summary import headline, tables


def write(path: Path, counts: Counts, source: str) -> None:
    """Write the page to ``path``; ``source`` names the data. Raises ``OSError`` if it can't be written."""
    document.write(path, page(counts, source))


def page(counts: Counts, source: str) -> str:
    """Return the page."""
    time = f"{text(_moment(counts.first))} to {text(_moment(counts.last))} UTC" if counts.first else "No requests."
    content = f"<p>{time}</p>\n{document.headline(headline(counts))}\n{_sections(counts)}"
    return document.document(f"Requests in {source}", content)


def _sections(counts: Counts) -> str:
    """Return each plot with the table that has its figures below it, then the other tables."""
    listed = {table.title: table for table in tables(counts)}
    parts = []
    for plot in plots(counts):
        parts.append(f"\n<h2>{text(plot.title)}</h2>\n{figure(plot)}")
        if plot.table in listed:
            parts.append(table_of(listed.pop(plot.table)))
    parts += [f"\n<h2>{text(table.title)}</h2>\n{table_of(table)}" for table in listed.values()]
    return "".join(parts)


def _moment(stamp: str) -> str:
    """Return a timestamp to the second."""
    return stamp[:19].replace("T", " ")
