"""The page of `stats --html`: one file that loads nothing, readable in light and dark, and without seeing the plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from inference_logging.read.pages import page as pages
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, paragraph, table_of
from inference_logging.read.pages.parts import headline as first_figures
from inference_logging.read.stats.counts import Counts
from inference_logging.read.stats.plots import plots
from inference_logging.read.stats.summary import headline, tables


def write(path: Path, counts: Counts, source: str) -> None:
    """Write the page to ``path``; ``source`` names the data. Raises ``OSError`` if it can't be written."""
    pages.write(path, page(counts, source))


def page(counts: Counts, source: str) -> str:
    """Return the page."""
    time = f"{_moment(counts.first)} to {_moment(counts.last)} UTC" if counts.first else "No requests."
    intro = [paragraph(time), first_figures(headline(counts))]
    return pages.document(f"Requests in {source}", intro, _sections(counts))


def _sections(counts: Counts) -> Iterator[Section]:
    """Iterate over each plot with the table that has its figures below it, then the other tables."""
    listed = {table.title: table for table in tables(counts)}
    for plot in plots(counts):
        table = listed.pop(plot.table, None)
        yield Section(plot.title, [figure(plot), table_of(table) if table else ""])
    for table in listed.values():
        yield Section(table.title, [table_of(table)])


def _moment(stamp: str) -> str:
    """Return a timestamp to the second."""
    return stamp[:19].replace("T", " ")
