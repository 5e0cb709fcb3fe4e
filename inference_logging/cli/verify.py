"""`inference-logging verify`: whether the books balance, and if not, which records are missing, since when, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, PREFIX, SERVICE_NAME, configuration


@click.command(
    "verify",
    epilog=examples(
        "inference-logging verify",
        "inference-logging verify logs --queue-directory /dev/shm/inference_logging-0-chat",
        "inference-logging verify logs logs-fallback --json | python3 -m json.tool",
    ),
)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option(
    "--queue-directory",
    "queues",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Directory of the processes' queues; may be repeated. Without it, those that the segments name, and that of a "
    "configured DIR.",
)
@CONFIG
@SERVICE_NAME
@PREFIX
@click.option(
    "--chain-key-file",
    type=click.Path(path_type=Path),
    help="Key of the audit lane's chain, as audit_chain_key_file. Without it, the configured one.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of words.")
def command(
    directories: tuple[Path, ...],
    queues: tuple[Path, ...],
    config_file: Path | None,
    service_name: str | None,
    prefixes: Sequence[str] | None,
    chain_key_file: Path | None,
    as_json: bool,
) -> int:
    """Prove that no record is missing in the segments of each DIR (default: the configured one), or name each gap.

    Per process: accepted = written + removed by retention + torn or corrupt + in its queue. All that belongs to one set
    of processes must be given together: the sink's directory and its fallback's. Segments are read plain, compressed
    and while they are written; those of the audit lane in DIR/audit too, or its SQLite database, and their hash chain
    is checked. A sealed segment is compared with the counts and the checksum in its footer, so that lines altered since
    are found. What was removed at the end of a chain shows only to who noted its last value elsewhere: it is printed.

    Exit code: 0 only if the books balance, 1 if they do not or something cannot be read, 2 for a wrong command line or
    configuration.
    """
    config = configuration(config_file=config_file, service_name=service_name)
    options = [f"--queue-directory={path}" for path in queues]
    options += [f"--prefix={name}" for name in prefixes or ()]
    options += native.options({"--service-name": service_name, "--chain-key-file": chain_key_file, "--json": as_json})
    return native.run(["verify", *options, "--", *map(str, directories)], config)
