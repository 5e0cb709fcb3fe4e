"""`inference-logging bench growth`: how the cost of logging grows with processes, record size, streams and threads."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inference_logging.cli.examples import examples

if TYPE_CHECKING:
    from inference_logging.prove.bench.series import Grown, Series


@click.command(
    "growth",
    epilog=examples(
        "inference-logging bench growth --quick",
        "inference-logging bench growth --out results",
        "inference-logging bench growth --quick --json",
    ),
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Write growth.json and growth.html there; the directory is made.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of sentences.")
@click.option("--quick", is_flag=True, help="Two short rounds at few places: to see that it works.")
def command(out: Path | None, *, as_json: bool, quick: bool) -> None:
    """Measure how the cost of logging grows: 1 to 16 processes, 100 B to 64 KiB, 1 to 5,000 streams, 1 to 64 threads.

    At each place the same work is done with and without logging by turns; what it costs is CPU time. One sentence for
    each quantity says what the figures prove. All of it takes about 3 minutes.
    """
    if out is not None:
        from inference_logging.prove.bench import page

        found = measured(out, quick, as_json)
        (out / "growth.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        page.write_growth(out / "growth.html", found)
        click.echo(f"wrote {out / 'growth.json'} and {out / 'growth.html'}", err=as_json)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            found = measured(Path(scratch), quick, as_json)
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))


def measured(out: Path, quick: bool, silent: bool) -> Grown:
    """Measure all quantities, with segments below ``out``; each sentence is printed as soon as it is known."""
    from inference_logging.prove.bench.growth import growth
    from inference_logging.prove.bench.machine import file_system, load, machine
    from inference_logging.prove.bench.result import SCHEMA

    load_before = load()

    def show(series: Series) -> None:
        click.echo(f"{series['title']}: {series['sentence']}", err=silent)

    found = growth(out, quick, show)
    return {
        "schema": SCHEMA,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["inference-logging", *sys.argv[1:]]),
        "quick": quick,
        "machine": machine(load_before, file_system(out)),
        "growth": found,
    }
