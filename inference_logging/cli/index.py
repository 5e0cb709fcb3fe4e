"""`inference-logging index`: make the index of segments, which `view` and `query` answer from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, PREFIX, SERVICE_NAME, configuration


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
    help="Where the index files are. Default: $XDG_CACHE_HOME/inference-logging, else ~/.cache/inference-logging.",
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
    """Make the index of the segments in each DIR (default: the configured one), or bring it up to date.

    The index is a cache with columns of the records: `view` and `query` answer from it instead of the lines, and make
    it themselves where it is missing. One file for each sealed segment, about 7 % of its plain size, only for this
    user. Files of segments that were removed are removed too. The whole cache may be deleted at any time.

    Exit code: 0 if everything is indexed, 1 if something cannot be read or kept, 2 for a wrong command line or
    configuration, or without segments.
    """
    config = configuration(config_file=config_file, service_name=service_name)
    options = [f"--prefix={name}" for name in prefixes or ()]
    options += native.options(
        {"--service-name": service_name, "--cache-directory": cache_directory, "--json": as_json}
    )
    return native.run(["index", *options, "--", *map(str, directories)], config)
