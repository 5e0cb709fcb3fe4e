"""Options that several commands share: which segments, which time."""

from __future__ import annotations

from pathlib import Path

import click

from inference_logging.cli.times import FORMS, from_option
from inference_logging.config import Config


def _configured(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    return value if value is not None else Config().directory


DIRECTORY = click.argument("directory", required=False, type=click.Path(path_type=Path), callback=_configured)
"""The directory of the segments: as given, else the configured one."""

PREFIX = click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    metavar="NAME",
    callback=lambda _context, _parameter, names: names or None,
    help="Only segments of this service_name; may be repeated. Without it, all.",
)

SINCE = click.option(
    "--since", callback=from_option, metavar="TIME", help=f"Only records from this time on: {FORMS} ago."
)

UNTIL = click.option("--until", callback=from_option, metavar="TIME", help="Only records before this time.")
