"""`inference-logging stats`: a summary of the requests of a directory, as tables, JSON or a page with plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from inference_logging.cli.filters import WHERE, conditions
from inference_logging.cli.options import OUTPUT, SINCE, UNTIL, Place, examples, of_segments
from inference_logging.cli.progress import bar
from inference_logging.read.stats.counting import count
from inference_logging.read.stats.counts import Counts
from inference_logging.read.stats.summary import figures, headline, tables
from inference_logging.read.terminal import safe

_PROGRESS_FROM_BYTES: Final = 16 << 20
"""An amount that is read within a moment, and needs no progress bar."""


@click.command(
    "stats",
    epilog=examples(
        "inference-logging stats",
        "inference-logging stats logs --since 2h --prefix inference",
        "inference-logging stats --where method=POST --where 'status>=400'",
        "inference-logging stats logs --json | python3 -m json.tool",
        "inference-logging stats logs --since 2026-11-21 --until 2026-11-22T06:00:00Z --html report.html",
    ),
)
@of_segments
@SINCE
@UNTIL
@WHERE
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables: times in seconds.")
@click.option("--html", type=OUTPUT, metavar="FILE", help="Write a page with plots instead, in one file.")
def command(
    place: Place,
    since: float | None,
    until: float | None,
    where: tuple[str, ...],
    as_json: bool,
    html: Path | None,
) -> None:
    """Summarize the requests of DIRECTORY (default: the configured one).

    Outcomes, rate from first to last request, quantiles of duration and time to first chunk, per model and per
    route; tokens by model; dropped records. Sampled requests are weighted by adjusted_count. Quantiles are within 1 %.
    The figures are those of `view` and `query`: the same table answers (see `index`). Memory does not grow with the
    input.
    """
    if html is not None and as_json:
        raise click.UsageError("--json and --html exclude each other")
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until: no record can be between them")
    chosen, wanted = place.segments(since), conditions(where)
    size = sum(segment.size_bytes() for segment in chosen)
    with bar(size, f"{{task.percentage:.0f}} % of {size / 1e6:,.0f} MB", visible=size >= _PROGRESS_FROM_BYTES) as moves:
        counts, damage, unknown = count(chosen, since, until, lambda read: moves(advance=read), wanted)
    if unknown is not None:
        raise click.UsageError(unknown)
    for damaged in damage:
        click.echo(f"inference-logging: {safe(damaged)}", err=True)
    if counts.corrupt_lines > len(damage):
        click.echo(f"inference-logging: {counts.corrupt_lines:,} lines could not be counted", err=True)
    if not counts.models:
        verb, there = ("arrived", "that time") if since is not None or until is not None else ("is", "these segments")
        wanted_ones = f"in {there} meets {' and '.join(map(safe, where))}" if where else f"{verb} in {there}"
        click.echo(f"inference-logging stats: nothing: no request {wanted_ones}", err=True)
    if html is not None:
        from inference_logging.read.stats import report

        report.write(html, counts, str(place.path))
        click.echo(f"wrote {html}")
    elif as_json:
        click.echo(json.dumps(figures(counts), indent=2, ensure_ascii=True))
    else:
        _print(counts)


def _print(counts: Counts) -> None:
    click.echo("\n".join(f"{name:<26} {value}" for name, value in headline(counts)))
    for table in tables(counts):
        click.echo("\n" + table.text())
