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
        "inference-logging listen --each '/queues/{k8s.namespace.name}/{k8s.pod.name}/queues'",
    ),
)
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
@click.option(
    "--each",
    metavar="PATTERN",
    help="Listen in each directory of this form, such as /queues/{k8s.namespace.name}/{k8s.pod.name}/queues: found as "
    "they come, drained and removed when their servers have ended. Names in braces become attributes of the resource; "
    "segments lie below directory, in a directory for each.",
)
@click.option(
    "--forget-after-s",
    type=click.FloatRange(0, 86_400),
    help="With --each: how long no server runs and nothing waits before a directory is forgotten (60).",
)
@click.option(
    "--ended-bytes",
    type=click.IntRange(0, 2**63 - 1),
    help="With --each: most bytes that the segments of forgotten directories have together; the oldest directory's go "
    "first. Without it only retention_s limits them.",
)
@click.option(
    "--make",
    type=click.Path(path_type=Path),
    multiple=True,
    help="With --each: make this directory first, of mode 1777, for others to make theirs in. May be given several "
    "times.",
)
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
    each: str | None,
    forget_after_s: float | None,
    ended_bytes: int | None,
    make: tuple[Path, ...],
    status_interval_s: float,
    metrics_port: int | None,
    metrics_address: str,
    console: bool,
) -> int:
    """Listen for servers that only produce (listener: external), or until another listener fails.

    It starts before or after them, and goes on when they are restarted. On SIGTERM or SIGINT it drains: it goes on as
    long as a server produces, at most drain_deadline_s, writes what is left and ends; a second signal ends it at once.
    SIGUSR1 and SIGHUP ask for a status line (SIGHUP of a closed terminal ends it).

    With --each it is the listener of many queue directories, such as those of all pods of a node: a listener for each,
    in one process. What producers say of their service and their redaction holds for their own directory; all else is
    this command's, and each has the quota for itself. Started as root, it reads and writes each directory as the user
    that owns it.

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
        "--each": each,
        "--forget-after-s": forget_after_s,
        "--ended-bytes": ended_bytes,
        "--status-interval-s": status_interval_s,
        "--metrics-port": metrics_port,
        "--metrics-address": metrics_address,
    }
    arguments = ["listen", *native.options(options), *(f"--make={path}" for path in make)]
    if click.get_current_context().obj and (config.audit == "off" or config.audit_sink == "file"):
        native.become(arguments, config)
    return native.run(arguments, config)
