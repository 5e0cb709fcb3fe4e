"""The parts of a page as HTML: the figures that come first, paragraphs, tables, plots with their words."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from inference_logging.read.pages.content import Plot, Table, rounded
from inference_logging.read.terminal import safe

_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=[^\W\d]|%)")
_NO_BREAK: Final = "\u00a0"


def headline(figures: Iterable[tuple[str, str]]) -> str:
    """Return the few figures that come first: name and value, whose unit stays beside its number."""
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{_BEFORE_UNIT.sub(_NO_BREAK, text(value))}</dd></div>"
        for name, value in figures
    )
    return f"<dl>{shown}</dl>"


def paragraph(words: str) -> str:
    """Return words as a paragraph; nothing without words."""
    return f"<p>{text(words)}</p>" if words else ""


def points(lines: Iterable[str]) -> str:
    """Return a list; nothing without lines."""
    listed = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{listed}</ul>" if listed else ""


def figure(plot: Plot) -> str:
    """Return a plot: its words, which stand open where no script runs, and its data."""
    data = rounded({"kind": plot.kind, "label": plot.title, "data": plot.data, "views": plot.views})
    # In an element of this type nothing is executed, and nothing in the data can end the element.
    written = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    words = f'<details class="words" open><summary>In words</summary><p>{text(plot.words)}</p></details>'
    return (
        f'<figure id="plot-{plot.name}" aria-label="{text(plot.title)}"><div class="drawn"></div>'
        f'<figcaption>{words}</figcaption><script type="application/json">{written}</script></figure>'
    )


def side_by_side(plots: Iterable[Plot]) -> str:
    """Return plots with headings, beside each other where there is room."""
    shown = "".join(f"<div><h3>{text(plot.title)}</h3>{figure(plot)}</div>" for plot in plots)
    return f'<div class="plots">{shown}</div>'


def table_of(table: Table, kind: str = "", ours: Collection[str] = ()) -> str:
    """Return a table; what stands behind a line break in a cell is small print, but not in the first column.

    ``kind`` is a class of the page's style; the rows with names in ``ours`` are emphasised.
    """
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in table.heads)
    rows = "".join(
        f'<tr{_class("ours" if row[0] in ours else "")}><th scope="row">{text(row[0])}</th>'
        + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])
        + "</tr>\n"
        for row in table.rows
    )
    note = f'<p class="note">{text(table.note)}</p>' if table.note else ""
    label = f' role="region" aria-label="Table: {text(table.title)}"' if table.title else ""
    return (
        f'\n<div class="wide" tabindex="0"{label}><table{_class(kind)}>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>{note}"
    )


def text(raw: str) -> str:
    """Return text as HTML, without characters that turn the line around or are invisible."""
    return html.escape(safe(raw))


def _cell(content: str) -> str:
    shown, _, small = content.partition("\n")
    return text(shown) + (f"<small>{text(small)}</small>" if small else "")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
