"""`inference-logging ship`: sends the records of segments to another machine, for hosts without a collector."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

import click

from inference_logging.cli.main import FAILED, INTERRUPTED, OK
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration, examples, not_a
from inference_logging.cli.signals import ENDING, Signals
from inference_logging.errors import MissingExtraError
from inference_logging.ship.directories import Member, Pattern
from inference_logging.ship.offsets import TakenError
from inference_logging.ship.opening import opener, schema
from inference_logging.ship.pauses import to_stderr
from inference_logging.ship.priority import lower_priority
from inference_logging.ship.shipper import Shipper

if TYPE_CHECKING:
    from inference_logging.ship.s3.shipper import SegmentShipper

_TURN_S: Final = 1.0
T = TypeVar("T")
M = TypeVar("M", bound=Member)


class Stop:
    """The end that a signal asks for, from entering to leaving; a second signal ends the process at once."""

    def __init__(self, numbers: Collection[signal.Signals] = ENDING) -> None:
        self._is_set = False
        self._signals = Signals(numbers, self._on_signal)

    def __enter__(self) -> Stop:
        """Begin to take signals."""
        self._signals.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the former handlers."""
        self._signals.__exit__(*error)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_set:
            # The next shipper sends what was not acknowledged.
            os._exit(INTERRUPTED)
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether the end was asked for."""
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait ``timeout`` seconds or until the end is asked for; return whether it is."""
        return self._is_set or self._signals.wait(timeout) is not None


def _pattern(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Pattern | None:
    try:
        return Pattern.parse(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


@click.command(
    "ship",
    epilog=examples(
        "inference-logging ship --to kafka://broker:9092/requests",
        "inference-logging ship --to 'otlp+https://collector:4318?signal=both'",
        "inference-logging ship --config logging.yaml --metrics-port 9465",
        "inference-logging ship --directory logs --to journald:///run/systemd/journal/socket --once",
        "inference-logging ship --to 'syslog+tls://logs:6514?max_bytes=1048576'",
        "inference-logging ship --directory logs --to 's3://bucket/logs?format=parquet'",
        "inference-logging ship --to opensearch+http://127.0.0.1:9200/inference-logs --print-schema > template.json",
        "inference-logging ship --each '/logs/{k8s.namespace.name}/{k8s.pod.name}' --state /var/lib/ship --once",
    ),
)
@CONFIG
@SERVICE_NAME
@click.pass_context
@click.option("--directory", type=click.Path(path_type=Path), help="Where segments are, as directory.")
@click.option(
    "--each",
    metavar="PATTERN",
    callback=_pattern,
    help="Ship from each directory of this form, such as /logs/{k8s.namespace.name}/{k8s.pod.name}, as they come: "
    "what `listen --each` writes. Needs --state.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="With --each: a directory for this shipper's progress.",
)
@click.option(
    "--to",
    "ship_to",
    help="Destination, as ship_to: kafka://, otlp+http://, otlp+https://, clickhouse+http://, opensearch+https://, "
    "elasticsearch+https://, s3://, syslog+tls:// or journald://; docs/parameters.md has each one's form.",
)
@click.option("--name", "name", help="Name of the shipper, as ship_name.")
@click.option("--once", is_flag=True, help="Ship what is there now, then end.")
@click.option(
    "--print-schema",
    is_flag=True,
    help="Print the statements for ClickHouse's tables, or OpenSearch's index template, and ship nothing.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics on this port; 0: a free one, which is reported.",
)
@click.option("--metrics-address", default="0.0.0.0", show_default=True, help="Address to serve them on.")
def command(
    context: click.Context,
    config_file: Path | None,
    service_name: str | None,
    directory: Path | None,
    each: Pattern | None,
    state: Path | None,
    ship_to: str | None,
    name: str | None,
    once: bool,
    print_schema: bool,
    metrics_port: int | None,
    metrics_address: str,
) -> int:
    """Send the records of all segments in directory to another machine, as they are written.

    Audit records go along, as records of the same service, if audit is on or their directory exists; an audit database
    (audit_sink: sqlite) is not sent. The command runs until it is stopped, or with --once until everything is sent.
    Records that come within ship_interval_s go together.

    Each record arrives at least once (buckets, ClickHouse, OpenSearch and Elasticsearch keep it once): progress is
    saved after the destination's acknowledgment, and the next shipper of the same name continues there. A failing
    destination is tried again without limit. A record that it refuses for good (too large, malformed) is counted,
    reported, and kept as a dead letter. See docs/shipping.md.

    With --each it ships from many directories, such as those of all pods of a node, in shared batches; no directory
    waits for another. It only reads them and keeps its progress in --state, so retention_waits_for does not see it. A
    removed directory is forgotten.

    If another shipper of the same name runs, this one waits for its end, or with --once exits with 1.

    On SIGTERM or SIGINT it ships the remaining records, and those that a listener still adds, for at most
    drain_deadline_s; a second signal ends it at once. It runs at the lowest priority (nice 19; best effort 7 for the
    disk), so that a server beside it goes first.

    Exit code: 1 if records remain (with --once also if some were refused), or it could not start.
    """
    if context.find_object(bool):
        lower_priority()
    config = configuration(
        config_file=config_file, service_name=service_name, directory=directory, ship_to=ship_to, ship_name=name
    )
    if config.ship_to is None:
        raise click.UsageError("ship_to=None: give --to, or configure ship_to")
    if print_schema:
        click.echo(schema(config), nl=False)
        return OK
    if (each is None) != (state is None):
        raise click.UsageError("give --each and --state together")
    if each is not None and directory is not None:
        raise click.UsageError("--directory and --each exclude each other")
    if once and each is None and not config.directory.is_dir():
        raise click.UsageError(not_a("directory", config.directory))
    own_name = config.resolved_ship_name
    every = (each, state) if each is not None and state is not None else None
    with Stop() as stop, contextlib.ExitStack() as opened:
        opens = opener(config, own_name, every, once=once)
        shipper = opens() if once else _in_turn(opens, stop)
        if shipper is None:
            return OK
        opened.enter_context(contextlib.closing(shipper))
        if metrics_port is not None:
            to_stderr(f"serves /metrics on port {_serve(own_name, shipper, metrics_address, metrics_port)}")
        arrived = shipper.run(stop, once=once, drain_s=config.drain_deadline_s)
    refused = f" refused={shipper.refused.total()}" if shipper.refused else ""
    left_out = f" left_out={shipper.left_out}" if shipper.left_out else ""
    live = f" live_segments={shipper.live}" if shipper.live else ""
    to_stderr(
        f"ended records={shipper.records}{refused}{left_out}{live} lag_bytes={0 if arrived else shipper.lag_bytes()}"
    )
    # A service that is asked to end has done so, whatever it once refused; who ships by hand looks at the code.
    return OK if arrived and not (once and shipper.refused) else FAILED


def _in_turn(opens: Callable[[], T], stop: Stop) -> T | None:
    """Return what ``opens`` does once no other shipper of this name runs; None: ``stop`` came first."""
    opened = _unless_taken(opens, says=True)
    while opened is None and not stop.wait(_TURN_S):
        opened = _unless_taken(opens, says=False)
    return opened


def _unless_taken(opens: Callable[[], T], *, says: bool) -> T | None:
    try:
        return opens()
    except TakenError as error:
        if says:
            to_stderr(f"waits: {error}")
    return None


def _serve(name: str, shipper: Shipper | SegmentShipper, address: str, port: int) -> int:
    try:
        from inference_logging.ship.metrics import serve  # only where metrics are wanted
    except ImportError:
        raise MissingExtraError("metrics_port", "prometheus-client", "ship") from None
    return serve(name, shipper, address, port)
