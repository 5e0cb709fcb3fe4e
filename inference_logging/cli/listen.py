"""`inference-logging listen`: the listener as a process of its own, beside servers that only produce.

It finds the servers by their queue directory and knows them by locks that the kernel releases: a sidecar sees no other
container's pids. Any number of them may run: one leads, the others wait to take over.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from inference_logging import origin
from inference_logging._native import Service
from inference_logging.cli.examples import examples
from inference_logging.cli.listening import lost, of_servers, open_listeners
from inference_logging.cli.main import FAILED, OK
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration
from inference_logging.cli.signals import ENDING, Signals
from inference_logging.config import Config
from inference_logging.errors import InferenceLoggingError

ASKING: Final = {signal.SIGUSR1, signal.SIGHUP}
LOOK_S: Final = 0.5
"""How late a change of the leader is told."""
DRAIN_LOOK_S: Final = 0.05
SHARE_OF_LAST_ROUND: Final = 0.2
"""Of the deadline: kept for the last round, where producers go on until the end."""


@click.command(
    "listen",
    epilog=examples(
        "inference-logging listen",
        "inference-logging listen --config logging.yaml --status-interval-s 10",
        "inference-logging listen --service-name chat",
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
    help="Serve /metrics, /health, /live and /producers there; 0: a free port, which is told.",
)
@click.option("--metrics-address", default="0.0.0.0", show_default=True, help="Where to serve them.")
def command(
    config_file: Path | None,
    service_name: str | None,
    queue_directory: Path | None,
    status_interval_s: float,
    metrics_port: int | None,
    metrics_address: str,
) -> int:
    """Listen for servers that only produce (listener: external), or until another listener fails.

    It starts before or after them, and goes on when they are restarted. On SIGTERM or SIGINT it drains: it goes on as
    long as a server produces, at most drain_deadline_s, writes what is left and ends; a second signal ends it at once.
    SIGUSR1 and SIGHUP ask for a status line (SIGHUP of a closed terminal ends it).

    Exit code: 0 if nothing is left in the queues or another listener goes on, 1 if something is or it could not start,
    2 if the configuration is wrong.
    """
    config = configuration(config_file=config_file, service_name=service_name, queue_directory=queue_directory)
    # Before anything is opened: the first process of a container gets no signal that it does not handle.
    with Signals(ASKING | ENDING) as signals:
        listeners = open_listeners(config)
        if metrics_port is not None:
            _open_endpoint(config, listeners, metrics_address, metrics_port)
        _serve(config, listeners, signals, status_interval_s)
        return _drain(listeners, signals, config.drain_deadline_s)


def _open_endpoint(config: Config, listeners: Sequence[Service], address: str, port: int) -> None:
    # It serves until the process ends: also while the last records are drained.
    from inference_logging.cli.endpoint import Endpoint, Listening  # only where metrics are wanted

    try:
        audit = listeners[1] if len(listeners) > 1 else None
        endpoint = Endpoint(Listening(config, listeners[0], audit), address, port)
    except InferenceLoggingError:
        for listener in listeners:
            listener.close(0.0)
        raise
    _say(f"serves /metrics on port {endpoint.port}")


def _serve(config: Config, listeners: Sequence[Service], signals: Signals, status_interval_s: float) -> None:
    """Tell how it goes until a signal says to end."""
    roles, due_s = "", 0.0
    reported: set[Path] = set()
    while True:
        for listener in listeners:
            listener.set_only_listens()  # again, in case the directory was deleted: it has a new queue then
        before, roles = roles, _roles(listeners)
        if roles != before or (status_interval_s > 0 and time.monotonic() >= due_s):
            _say(f"{roles} {_status(listeners)}")
            due_s = time.monotonic() + status_interval_s
        for other in origin.of_others(config):
            if other.path not in reported:
                reported.add(other.path)
                _say(other.sentence())
        asked = signals.wait(LOOK_S)
        if asked in ENDING or (asked == signal.SIGHUP and sys.stderr.isatty()):
            return
        if asked is not None:
            _say(f"{_roles(listeners)} {_status(listeners)}")


def _drain(listeners: Sequence[Service], signals: Signals, deadline_s: float) -> int:
    """Go on for servers that still produce, write what is left, and return the exit code."""
    _say(f"draining {_status(listeners)}")
    end_s = time.monotonic() + deadline_s
    last_round_s = end_s - deadline_s * SHARE_OF_LAST_ROUND
    while any(map(_is_needed, listeners)) and time.monotonic() < last_round_s:
        if signals.wait(DRAIN_LOOK_S) in ENDING:
            end_s = time.monotonic()
            break
    for ended, listener in enumerate(listeners):
        # A lane whose sink hangs leaves the others their share.
        listener.close(max(0.0, end_s - time.monotonic()) / (len(listeners) - ended))
    left = sum(map(_left, listeners))
    _say(f"ended {_status(listeners)} left={left}")
    return FAILED if left else OK


def _is_needed(listener: Service) -> bool:
    """Tell whether a server produces that no other listener would serve."""
    return _leader(listener) != "elsewhere" and any(
        queue["producer"] == "elsewhere" for queue in of_servers(listener.queues())
    )


def _left(listener: Service) -> int:
    """Return how many records wait that nobody writes now."""
    return 0 if _leader(listener) == "elsewhere" else sum(queue["in_queue"] for queue in listener.queues())


def _leader(listener: Service) -> str:
    return str(listener.listener_stats()["leader"])


def _roles(listeners: Sequence[Service]) -> str:
    return ",".join("leader" if _leader(listener) == "here" else "waiting" for listener in listeners)


def _status(listeners: Sequence[Service]) -> str:
    queues = [queue for listener in listeners for queue in of_servers(listener.queues())]
    totals = [listener.totals() for listener in listeners]
    ill = [sink for listener in listeners for sink in listener.sinks() if sink["state"] != "ok"]
    parts = {
        "queues": len(queues),
        "in_queue": sum(queue["in_queue"] for queue in queues),
        "written": sum(total["written"] for total in totals),
        "dropped": sum(lost(total["dropped"]) for total in totals),
        **{f"sink.{sink['name']}": sink["state"] for sink in ill},
    }
    return " ".join(f"{name}={value}" for name, value in parts.items())


def _say(line: str) -> None:
    # A pipe that nobody reads must not hold up the signals: then the line is left out.
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [sys.stderr], [], 0)[1]:
            sys.stderr.write(f"inference-logging listen: {line}\n")
            sys.stderr.flush()
