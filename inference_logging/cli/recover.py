"""`inference-logging recover`: write what is left in queues whose servers and listeners are gone.

A server that starts does the same with what it finds in its queue directory. This is for directories that no server
comes back to: of a host's last life, of a renamed service, of a volume that was saved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from inference_logging import origin
from inference_logging._native import HeldQueues, configuration_differences, configuration_of
from inference_logging.cli.examples import examples
from inference_logging.cli.listening import open_listeners
from inference_logging.cli.main import FAILED, OK
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration, queue_directory_of
from inference_logging.cli.signals import Signals
from inference_logging.config import Config

AUDIT_DIRECTORY: Final = "audit"
"""Below the queue directory: the queues of the audit lane."""
LEADER_LOCK: Final = "leader.lock"
"""In each queue directory that ever had a listener."""
LOOK_S: Final = 0.02


class Lane(NamedTuple):
    """The queues of one lane, and whether the configuration has a listener for it."""

    name: str
    held: HeldQueues
    is_served: bool


@click.command(
    "recover",
    epilog=examples(
        "inference-logging recover --config logging.yaml",
        "inference-logging recover /dev/shm/inference_logging-0-chat",
        "inference-logging recover /mnt/saved-queues --directory logs --json",
    ),
)
@click.argument("queue_directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@CONFIG
@SERVICE_NAME
@click.option("--directory", type=click.Path(path_type=Path), help="Where the segments go, as directory of a server.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    queue_directory: Path | None,
    config_file: Path | None,
    service_name: str | None,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Write the records left in the queue directory DIR (default: the configured one) to the configured sink, once.

    What a process had committed is written, also where it was killed; what it had only begun is counted as torn. If a
    listener is at work there, that one writes. Where the records went and what was redacted stands in
    DIR/configuration.yaml; what differs from it must be given here, by option, environment or file. The queues of
    servers that still run are written as far as they are, and stay. Those of the audit lane need audit: on. It gives up
    when nothing could be written for drain_deadline_s; again is always allowed.

    DIR may be a copy or have been moved. Records that stand in segments already are not written again. Of a copy, and
    where the queues do not hold all of it, the last write is never cut off a segment: that is named, and stays as it
    is. A copy of a queue whose records another listener still writes is left alone.

    Exit code: 0 if everything is written, 1 if something is left or could not be read, 2 if DIR is no queue directory
    or the configuration is wrong.
    """
    config = configuration(
        config_file=config_file, service_name=service_name, directory=directory, queue_directory=queue_directory
    )
    queue_directory = queue_directory_of(config)
    if queue_directory != config.resolved_queue_directory:
        config = config.model_copy(update={"queue_directory": queue_directory})
    try:
        lanes = list(_lanes(queue_directory, config))
    except OSError as error:
        raise click.UsageError(f"{queue_directory}: {error}") from None
    if not (queue_directory / LEADER_LOCK).exists() and not any(_has_files(lane.held) for lane in lanes):
        raise click.UsageError(f"{queue_directory}: no queue directory: it holds no queues, and no listener was there")
    _compare(queue_directory, config)
    with Signals() as signals:
        found = _recover(lanes, config, signals)
    # Records that go to stdout are not mixed with what is told about them.
    click.echo(json.dumps(found) if as_json else _table(found), err=config.sink == "stdout")
    is_left = any(process["left"] or process["corrupt"] for process in found["processes"])
    return FAILED if is_left or found["unreadable"] or found["kept"] else OK


def _compare(directory: Path, config: Config) -> None:
    """See that nothing is written elsewhere or redacted otherwise than its producers said, unless that is asked for.

    Raises ``click.UsageError`` naming what differs and is only a default here.
    """
    noted = configuration_of(directory)
    found = configuration_differences(noted, origin.text(config)) if noted is not None else []
    differing = {sentence.partition(" ")[0]: sentence for sentence in found}
    for name in [name for name in differing if name.startswith("audit")]:
        del differing[name]  # of a lane that is on in one of them only, and else below directory
    given = {name for name in differing if name in config.model_fields_set or f"{name}_file" in config.model_fields_set}
    if silent := [sentence for name, sentence in differing.items() if name not in given]:
        raise click.UsageError(
            f"{directory} is another configuration's: {'; '.join(silent)}. "
            f"--config {directory / origin.CONFIGURATION} writes its records as their producers said"
        )


def _has_files(held: HeldQueues) -> bool:
    return bool(held.queues() or held.unreadable())


def _lanes(directory: Path, config: Config) -> Iterator[Lane]:
    """Look at every queue of the directory before a listener of this process does."""
    yield Lane("fast", HeldQueues(directory), is_served=True)
    if (directory / AUDIT_DIRECTORY).is_dir():
        yield Lane("audit", HeldQueues(directory / AUDIT_DIRECTORY), is_served=config.audit == "on")


def _recover(lanes: Sequence[Lane], config: Config, signals: Signals) -> dict[str, Any]:
    before = [lane.held.queues() for lane in lanes]
    kept: list[str] = []
    if any(queues for lane, queues in zip(lanes, before, strict=True) if lane.is_served):
        listeners = open_listeners(config, claims=False)
        patience_s = 0.0
        try:
            _wait([lane.held for lane in lanes if lane.is_served], config.drain_deadline_s, signals)
            patience_s = config.drain_deadline_s
        finally:
            # Ended by a signal, it waits for nothing: what is left stays in the queues.
            for listener in listeners:
                listener.close(patience_s)
                kept += listener.kept()
    processes = [
        _told(lane.name, then, now)
        for lane, queues in zip(lanes, before, strict=True)
        for then, now in zip(queues, lane.held.queues(), strict=True)
    ]
    return {
        "queue_directory": str(config.resolved_queue_directory),
        "recovered": sum(process["recovered"] for process in processes),
        "processes": processes,
        "kept": kept,
        "unreadable": [{"file": name, "why": why} for lane in lanes for name, why in lane.held.unreadable()],
    }


def _wait(all_held: Sequence[HeldQueues], patience_s: float, signals: Signals) -> None:
    """Wait until the queues of the dead are gone, or nothing moves any more, or a signal asks for the end."""
    waiting, end_s = -1, 0.0
    while dead := [queue for held in all_held for queue in held.queues() if _is_dead(queue)]:
        before, waiting = waiting, sum(queue["in_queue"] for queue in dead) + len(dead)
        if waiting != before:
            end_s = time.monotonic() + patience_s
        elif time.monotonic() >= end_s:
            return
        if signals.wait(LOOK_S) is not None:
            raise click.Abort


def _is_dead(queue: dict[str, Any]) -> bool:
    return bool(queue["exists"]) and queue["producer"] == "nobody"


def _told(lane: str, then: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    def count(reason: str) -> int:
        return sum(now["dropped"].get(reason, {}).values())

    return {
        "lane": lane,
        "boot_id": now["boot_id"],
        "pid": now["pid"],
        "state": "alive" if now["producer"] == "elsewhere" else "ended",
        "accepted": now["accepted"],
        "recovered": now["written"] - then["written"],
        "torn": count("torn"),
        "corrupt": count("corrupt"),
        "left": now["in_queue"] if now["producer"] == "nobody" else 0,
    }


def _table(found: dict[str, Any]) -> str:
    columns = ("lane", "boot_id", "pid", "state", "accepted", "recovered", "torn", "corrupt", "left")
    rows = [columns, *([str(process[column]) for column in columns] for process in found["processes"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines = lines if found["processes"] else []
    lines += [f"{queue['file']}: not recovered: {queue['why']}" for queue in found["unreadable"]]
    lines += found["kept"]
    summary = f"recovered={found['recovered']} processes={len(found['processes'])} from {found['queue_directory']}"
    return "\n".join([*lines, summary])
