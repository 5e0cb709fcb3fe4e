"""`inference-logging index`: write the table of segments, which `view`, `query` and `stats` ask, as Parquet files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from inference_logging.cli.options import CONFIG, PREFIX, SERVICE_NAME, chosen, examples, not_a
from inference_logging.read.terminal import safe


@click.command(
    "index",
    epilog=examples(
        "inference-logging index",
        "inference-logging index logs --cache-directory /var/cache/inference-logging",
        "inference-logging index logs --json | python3 -m json.tool",
    ),
)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@CONFIG
@SERVICE_NAME
@PREFIX
@click.option(
    "--cache-directory",
    type=click.Path(path_type=Path),
    help="Where the files are. Default: $XDG_CACHE_HOME/inference-logging, else ~/.cache/inference-logging.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of words.")
def command(
    directories: tuple[Path, ...],
    config_file: Path | None,
    service_name: str | None,
    prefixes: Sequence[str] | None,
    cache_directory: Path | None,
    as_json: bool,
) -> int:
    """Write the table of the segments in each DIR (default: the configured one), or bring it up to date.

    `view`, `query` and `stats` read the table instead of the lines, and make it if it is missing. It is a cache, which
    may be deleted at any time: a Parquet file for each sealed segment, about 10 % of its plain size, only for this
    user. Files of removed segments are removed too.

    Exit code: 0 if everything is there, 1 if something cannot be read or kept, 2 for a wrong command line or
    configuration, or without segments.
    """
    from inference_logging.read.table.table import Table

    given, services = chosen(directories, prefixes, config_file, service_name)
    for directory in given:
        if not directory.is_dir():
            raise click.UsageError(not_a("directory", directory))
    begun_s = time.monotonic()
    table = Table(given, services, cache_directory, "index")
    progress = table.complete()
    if not progress["segments"]:
        raise click.UsageError(f"no segments in {', '.join(map(str, given))}")
    is_whole = progress.pop("done") and not progress["problems"]
    caches = [{"directory": str(path), "bytes": _bytes(path)} for path in table.cache_directories()]
    found = {**progress, "caches": caches, "seconds": time.monotonic() - begun_s}
    click.echo(orjson.dumps(found).decode() if as_json else _words(found))
    return 0 if is_whole else 1


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.parquet"))


def _words(found: dict[str, Any]) -> str:
    first = (
        f"{found['indexed_segments']} of {found['segments']} segments are in the table: {found['rows']} records, "
        f"{found['indexed_bytes'] / 1e6:.1f} of {found['bytes'] / 1e6:.1f} MB, in {found['seconds']:.1f} s"
    )
    caches = [f"cache: {safe(cache['directory'])}: {cache['bytes'] / 1e6:.1f} MB" for cache in found["caches"]]
    return "\n".join([first, *caches, *(f"problem: {safe(problem)}" for problem in found["problems"])])
