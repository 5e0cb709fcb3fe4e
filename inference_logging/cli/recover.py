"""`inference-logging recover`: write what is left in queues without a server and a listener.

A server does the same at its start in its own queue directory. This command is for directories to which no server comes
back: after a host's restart, of a renamed service, on a volume that was saved.
"""

from __future__ import annotations

from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, examples


@click.command(
    "recover",
    epilog=examples(
        "inference-logging recover --config logging.yaml",
        "inference-logging recover /dev/shm/inference_logging-0-chat",
        "inference-logging recover /mnt/saved-queues --directory logs --json",
    ),
)
@click.argument("argument", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
@click.option("--directory", type=click.Path(path_type=Path), help="Where segments go, as directory.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    argument: Path | None,
    config_file: Path | None,
    service_name: str | None,
    queue_directory: Path | None,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Write the records left in the queue directory DIR (default: this folder's application's) to the sink, once.

    All that a process committed is written, even if it was killed; unfinished records are counted as torn. If a
    listener is at work there, it writes them. --config DIR/configuration.yaml
    writes where the servers did and redacts as they did. Queues of servers that still
    run are written up to now, and stay. Audit queues need audit: on. The command gives up if nothing could be written
    for drain_deadline_s; you can run it again at any time.

    Without DIR, it is found as by `ctl`; if there are several, they are listed and nothing is written.

    DIR may be a copy or have been moved. Records that segments already hold are not written again. A copy of a queue
    whose records another listener still writes is left alone. See docs/loss.md.

    Exit code: 1 if something is left or could not be read; 2 if DIR is not a queue directory.
    """
    if argument is not None and queue_directory is not None:
        raise click.UsageError("give DIR or --queue-directory, not both")
    config = configuration(
        config_file=config_file,
        service_name=service_name,
        directory=directory,
        queue_directory=argument if argument is not None else queue_directory,
    )
    return native.run(["recover", *native.options(service_name=service_name, json=as_json)], config)
