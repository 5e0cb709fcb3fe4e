"""`inference-logging proxy`: a reverse proxy that records the requests of a server which has no hook of its own.

It is a command of the program inference-logging-listener: an event loop would only make the Python module larger.
"""

from __future__ import annotations

from pathlib import Path

import click

from inference_logging.cli import native
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, examples


@click.command(
    "proxy",
    epilog=examples(
        "inference-logging proxy --listen 0.0.0.0:8000 --to 127.0.0.1:8080",
        "inference-logging proxy --listen 0.0.0.0:8001 --to 127.0.0.1:8011 --http2 --service-name triton",
    ),
)
@click.option("--listen", required=True, metavar="ADDRESS", help="Where clients connect: host:port.")
@click.option("--to", required=True, metavar="ADDRESS", help="The server: host:port, or http://host:port.")
@click.option("--http2", is_flag=True, help="Speak HTTP/2 to the server for all requests, not only gRPC.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads that pass requests on (one per core).")
@click.option(
    "--forwarded",
    type=click.Choice(["replace", "append", "keep"]),
    help="Clients' X-Forwarded-For, -Proto and Forwarded: replace (the default), append if whatever is in front can "
    "be trusted, or keep.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    help="Most client connections; above it the oldest without a request is closed, or else the new one. Default: "
    "half of the open files allowed.",
)
@click.option(
    "--header-timeout",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    help="How long a client may take to send a request's head, or be idle (30).",
)
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
def command(
    config_file: Path | None, service_name: str | None, queue_directory: Path | None, **options: str | int | None
) -> int:
    """Record the requests of a server without a hook, by passing them on to it.

    It passes HTTP/1.1 and HTTP/2 without TLS, gRPC, streams and WebSockets; bodies are unchanged, and not held back. On
    SIGTERM or SIGINT it takes no more connections, lets requests end within drain_deadline_s, and writes what is left;
    a second signal ends it at once. It is the program inference-logging-listener (`pip install inferlog-listener`).

    Exit code: 1 if something is left or it could not start.
    """
    config = configuration(config_file=config_file, service_name=service_name, queue_directory=queue_directory)
    native.become(["proxy", *native.options(**options)], config)
    raise click.ClickException(
        f"the program {native.PROGRAM} is not installed beside this package: pip install {native.DISTRIBUTION}, or "
        "`make wheel` in a checkout"
    )
