"""`inference-logging verify`: whether the books balance, and if not, which records are missing, since when, and why."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.main import FAILED, OK
from inference_logging.cli.options import CONFIG, PREFIX, SEGMENTS, SERVICE_NAME, configuration, examples, not_a
from inference_logging.read.terminal import safe


@click.command(
    "verify",
    epilog=examples(
        "inference-logging verify",
        "inference-logging verify logs --queue-directory /dev/shm/inference_logging-0-chat",
        "inference-logging verify logs logs-fallback --json | python3 -m json.tool",
        "inference-logging verify 's3://bucket/logs?date=2026-11-01..' --restore restored",
    ),
)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=SEGMENTS)
@click.option(
    "--queue-directory",
    "queues",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Directory of the processes' queues; repeatable. Default: those that the segments name, and that of a "
    "configured DIR.",
)
@CONFIG
@SERVICE_NAME
@PREFIX
@click.option(
    "--chain-key-file",
    type=click.Path(path_type=Path),
    help="Key of the audit chain, as audit_chain_key_file. Default: the configured one.",
)
@click.option(
    "--restore",
    type=click.Path(path_type=Path, file_okay=False),
    help="With s3://: keep the objects, as segments, in this new or empty directory.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of words.")
def command(
    directories: tuple[Path | str, ...],
    queues: tuple[Path, ...],
    config_file: Path | None,
    service_name: str | None,
    prefixes: Sequence[str] | None,
    chain_key_file: Path | None,
    restore: Path | None,
    as_json: bool,
) -> int:
    """Prove that no record is missing in the segments of each DIR (default: the configured one), or name each gap.

    For each process: accepted = written + removed by retention + torn or corrupt + in its queue. Give all directories
    of a set of processes together: the sink's and its fallback's. Segments are read plain, compressed and while they
    are written, and audit segments in DIR/audit, or its SQLite database, with their hash chain. A sealed segment is
    compared with the counts and checksum in its footer, so later changes are found. The last value of a chain is
    printed. Note it elsewhere: nothing else shows that a chain's end was removed.

    With s3://bucket/prefix (extra `s3`), the objects are first compared with their manifests; see
    docs/object-storage.md. ?date=FROM..TO, service=, hour= and pod= choose objects.

    Exit code: 0 only if the books balance; 1 if they do not or something cannot be read.
    """
    if restore is not None or any(isinstance(one, str) for one in directories):
        only = [] if queues or prefixes or config_file or service_name else directories
        return _of_bucket(only, chain_key_file, restore, as_json=as_json)
    for given in map(Path, directories):
        if not given.is_dir():
            raise click.UsageError(not_a("directory", given))
    config = configuration(config_file=config_file, service_name=service_name)
    shared = {"queue_directory": queues, "prefix": prefixes, "service_name": service_name, "json": as_json}
    options = native.options(**shared, chain_key_file=chain_key_file)
    return native.run(["verify", *options, "--", *map(str, directories)], config)


def _of_bucket(
    places: Sequence[Path | str], chain_key_file: Path | None, restore: Path | None, *, as_json: bool
) -> int:
    """Verify one bucket; everything else that could be given belongs to directories."""
    from inference_logging.ship.s3.checking import Check, words  # only where there is a bucket
    from inference_logging.ship.s3.place import Place, PlaceError
    from inference_logging.ship.s3.store import Store, StoreError

    if len(places) != 1 or not isinstance(places[0], str):
        raise click.UsageError("s3:// goes only with --restore, --chain-key-file and --json")
    if restore is not None and restore.exists() and any(restore.iterdir()):
        raise click.UsageError(f"--restore {restore}: must be new or empty")
    options = [f"--chain-key-file={chain_key_file}"] if chain_key_file is not None else []
    with contextlib.ExitStack() as stack:
        folder = restore
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inference-logging-")))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            place = Place.parse(places[0])
            report = Check(Store(place), place, folder, options=options).run()
        except PlaceError as error:
            raise click.UsageError(str(error)) from None
        except StoreError as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        click.echo("\n".join(map(safe, words(report))))
    return FAILED if report.problems else OK
