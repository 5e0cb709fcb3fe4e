"""`inference-logging listen`: the listener as a process of its own, beside servers that only produce.

The listener finds the servers by their queue directory, and knows that they live by locks that the kernel releases,
since a sidecar does not see the pids of another container. Any number of listeners may run: one leads, the others wait
to take over.
"""

from __future__ import annotations

from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration


@click.command(
    "listen",
    epilog=examples(
        "inference-logging listen",
        "inference-logging listen --config logging.yaml --status-interval-s 10",
        "inference-logging listen --service-name chat",
        "inference-logging listen --console",
    ),
)
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
@click.option(
    "--status-interval-s",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    help="Time between two status lines on stderr; 0: only on SIGUSR1, and when this process begins to lead.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics, /health, /live and /producers there; 0: a free port, which is reported.",
)
@click.option("--metrics-address", default="0.0.0.0", show_default=True, help="Where to serve them.")
@click.option("--console", is_flag=True, help="Show the records on stderr, as console: on, while this process leads.")
def command(
    config_file: Path | None,
    service_name: str | None,
    queue_directory: Path | None,
    status_interval_s: float,
    metrics_port: int | None,
    metrics_address: str,
    console: bool,
) -> int:
    """Listen for servers that only produce (listener: external), or until another listener fails.

    It starts before or after them, and goes on when they are restarted. On SIGTERM or SIGINT it drains: it goes on as
    long as a server produces, at most drain_deadline_s, writes what is left and ends; a second signal ends it at once.
    SIGUSR1 and SIGHUP ask for a status line (SIGHUP of a closed terminal ends it).

    Exit code: 0 if nothing is left in the queues or another listener goes on, 1 if something is or it could not start,
    2 if the configuration is wrong.
    """
    config = configuration(
        config_file=config_file,
        service_name=service_name,
        queue_directory=queue_directory,
        console="on" if console else None,
    )
    options = {
        "--status-interval-s": status_interval_s,
        "--metrics-port": metrics_port,
        "--metrics-address": metrics_address,
    }
    arguments = ["listen", *native.options(options)]
    if click.get_current_context().obj and (config.audit == "off" or config.audit_sink == "file"):
        native.become(arguments, config)
    return native.run(arguments, config)
