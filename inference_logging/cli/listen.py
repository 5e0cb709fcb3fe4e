"""`inference-logging listen`: the listener as a process of its own, beside servers that only produce.

The listener finds the servers by their queue directory, and knows that they live by locks that the kernel releases,
since a sidecar does not see the pids of another container. Any number of listeners may run: one leads, the others wait
to take over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inference_logging.cli import native
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, examples


@click.command(
    "listen",
    epilog=examples(
        "inference-logging listen",
        "inference-logging listen --config logging.yaml --status-interval-s 10",
        "inference-logging listen --service-name chat",
        "inference-logging listen --console",
        "inference-logging listen --each '/queues/{k8s.namespace.name}/{k8s.pod.name}/queues'",
    ),
)
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
@click.option(
    "--each",
    metavar="PATTERN",
    help="Listen in each directory of this form, such as /queues/{k8s.namespace.name}/{k8s.pod.name}/queues: found "
    "as they come, drained and removed when their servers have ended. Names in braces become resource "
    "attributes; segments go to a directory for each, below directory.",
)
@click.option(
    "--forget-after-s",
    type=click.FloatRange(0, 86_400),
    help="With --each: forget a directory after this time without a server or waiting records (60).",
)
@click.option(
    "--ended-bytes",
    type=click.IntRange(0, 2**63 - 1),
    help="With --each: most bytes of all forgotten directories' segments; the oldest directory's go first. Without "
    "it only retention_s limits them.",
)
@click.option(
    "--make",
    type=click.Path(path_type=Path),
    multiple=True,
    help="With --each: first make this directory, of mode 1777, for others to make theirs in; repeatable.",
)
@click.option(
    "--status-interval-s",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    help="Time between status lines on stderr; 0: only on SIGUSR1, and when this process begins to lead.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics, /health, /live and /producers on this port; 0: a free one, which is reported.",
)
@click.option("--metrics-address", default="0.0.0.0", show_default=True, help="Address to serve them on.")
@click.option("--console", is_flag=True, help="Show records on stderr, as console: on, while this process leads.")
def command(
    config_file: Path | None, service_name: str | None, queue_directory: Path | None, console: bool, **options: Any
) -> int:
    """Listen for servers that only produce (listener: external), or wait until another listener fails.

    Start it before or after them; it keeps running when they restart. On SIGTERM or SIGINT it drains: it goes on while
    a server produces, for at most drain_deadline_s, writes what is left and ends; a second signal ends it at once.
    SIGUSR1 and SIGHUP print a status line (SIGHUP of a closed terminal ends it).

    With --each it listens in many queue directories, such as those of all pods of a node, in one process. Each
    directory keeps its producers' service and redaction, and has the quota for itself; everything else follows this
    command's configuration. Started as root, it reads and writes each directory as its owner.

    Exit code: 1 if records are left and no other listener goes on, or if it could not start.
    """
    config = configuration(
        config_file=config_file,
        service_name=service_name,
        queue_directory=queue_directory,
        console="on" if console else None,
    )
    arguments = ["listen", *native.options(**options)]
    if click.get_current_context().obj and (config.audit == "off" or config.audit_sink == "file"):
        native.become(arguments, config)
    return native.run(arguments, config)
