"""A page as one file that loads nothing: its frame and style, plots with their words, tables of text."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from inference_logging.cli.terminal import safe
from inference_logging.stats.drawing import Plot
from inference_logging.stats.summary import Table

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --quiet: #5b6470; --grid: #d5dae0;
  --first: #1f6fc4; --second: #d2691e; --third: #2a8a6a; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --quiet: #9aa4af; --grid: #3a424b;
  --first: #62a8f2; --second: #f0914a; --third: #55c29b; --panel: #1d2227; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { margin-bottom: 0; overflow-wrap: anywhere; } h2 { margin: 2.2rem 0 .4rem; font-size: 1.2rem; }
p { color: var(--quiet); margin: .3rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem; }
dl div { background: var(--panel); border-radius: .5rem; padding: .7rem 1rem; }
dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
figure { margin: 0; } .wide { overflow-x: auto; } svg { display: block; width: 100%; min-width: 36rem; height: auto;
  overflow: visible; } .wide:has(svg) { padding-right: 1.5rem; }
table { border-collapse: collapse; margin-top: .6rem; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
th { font-weight: 600; } tbody th { font-weight: 400; } td small { display: block; color: var(--quiet); }
.wide:focus-visible { outline: 2px solid var(--first); }
"""


def write(path: Path, content: str) -> None:
    """Write a page to ``path``, for its owner to read. Raises ``OSError`` if it can't be written."""
    with open(path, "w", encoding="utf-8", opener=_for_its_owner) as file:
        file.write(content)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def document(title: str, content: str, style: str = "") -> str:
    """Return the page; ``title`` is text, ``content`` is HTML, ``style`` is added to that of every page."""
    title = text(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The page itself says that it needs nothing: a browser would refuse to load it.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n{content}\n</main>\n</body>\n</html>\n"
    )


def headline(figures: Iterable[tuple[str, str]]) -> str:
    """Return the few figures that come first: name and value."""
    shown = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in figures)
    return f"<dl>{shown}</dl>"


def figure(plot: Plot) -> str:
    """Return a plot with its description in words."""
    labels = f"{plot.name}-title {plot.name}-words"
    begin, inner = plot.svg.split(">", 1)
    named = (
        f'{begin} role="img" aria-labelledby="{labels}"><title id="{plot.name}-title">{text(plot.title)}</title>'
        f'<desc id="{plot.name}-words">{text(plot.words)}</desc>{inner}'
    )
    return f'<figure><div class="wide" tabindex="0">{named}</div></figure>'


def table_of(table: Table) -> str:
    """Return a table; what stands behind a line break in a cell is small print, but not in the first column."""
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in table.heads)
    rows = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>' + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:]) + "</tr>\n"
        for row in table.rows
    )
    note = f"<p>{text(table.note)}</p>" if table.note else ""
    return (
        f'\n<div class="wide" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>{note}"
    )


def _cell(content: str) -> str:
    shown, _, small = content.partition("\n")
    return text(shown) + (f"<small>{text(small)}</small>" if small else "")


def text(raw: str) -> str:
    """Return text as HTML, without characters that turn the line around or are invisible."""
    return html.escape(safe(raw))
