"""The page of `stats --html`: one file that loads nothing, readable in light and dark, and without seeing the plots."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Final

from inference_logging.cli.terminal import safe
from inference_logging.stats.counts import Counts
from inference_logging.stats.plots import Plot, plots
from inference_logging.stats.summary import Table, headline, tables

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
th { font-weight: 600; } tbody th { font-weight: 400; } .wide:focus-visible { outline: 2px solid var(--first); }
"""


def write(path: Path, counts: Counts, source: str) -> None:
    """Write the page to ``path``; ``source`` names the data. Raises ``OSError`` if it can't be written."""
    content = page(counts, source)
    with open(path, "w", encoding="utf-8", opener=_for_its_owner) as file:
        file.write(content)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def page(counts: Counts, source: str) -> str:
    """Return the page."""
    title = f"Requests in {_text(source)}"
    time = f"{_text(_moment(counts.first))} to {_text(_moment(counts.last))} UTC" if counts.first else "No requests."
    figures = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in headline(counts))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The page itself says that it needs nothing: a browser would refuse to load it.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<p>{time}</p>\n<dl>{figures}</dl>\n{_sections(counts)}\n</main>\n</body>\n</html>\n"
    )


def _sections(counts: Counts) -> str:
    """Return each plot with the table that has its figures below it, then the other tables."""
    listed = {table.title: table for table in tables(counts)}
    parts = []
    for plot in plots(counts):
        parts.append(f"\n<h2>{_text(plot.title)}</h2>\n{_figure(plot)}")
        if plot.table in listed:
            parts.append(_table(listed.pop(plot.table)))
    parts += [f"\n<h2>{_text(table.title)}</h2>\n{_table(table)}" for table in listed.values()]
    return "".join(parts)


def _figure(plot: Plot) -> str:
    """Return a plot with its description in words."""
    labels = f"{plot.name}-title {plot.name}-words"
    begin, inner = plot.svg.split(">", 1)
    named = (
        f'{begin} role="img" aria-labelledby="{labels}"><title id="{plot.name}-title">{_text(plot.title)}</title>'
        f'<desc id="{plot.name}-words">{_text(plot.words)}</desc>{inner}'
    )
    return f'<figure><div class="wide" tabindex="0">{named}</div></figure>'


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{_text(head)}</th>' for head in table.heads)
    rows = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>' + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:]) + "</tr>\n"
        for row in table.rows
    )
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    return (
        f'\n<div class="wide" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>{note}"
    )


def _moment(stamp: str) -> str:
    """Return a timestamp to the second."""
    return stamp[:19].replace("T", " ")


def _text(text: str) -> str:
    return html.escape(safe(text))
