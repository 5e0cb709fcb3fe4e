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

from inference_logging._native import HeldQueues
from inference_logging.cli.examples import examples
from inference_logging.cli.listening import open_listeners
from inference_logging.cli.main import FAILED, OK
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
        "inference-logging recover /dev/shm/inference_logging-0-chat",
        "inference-logging recover /mnt/saved-queues --directory logs --json",
    ),
)
@click.argument("queue_directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file, as if config_file named it.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the segments go, as directory of a server.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(queue_directory: Path, file: Path | None, directory: Path | None, as_json: bool) -> int:
    """Write the records left in the queue directory DIR to the configured sink, once, and tell how many of each.

    What a process had committed is written, also where it was killed; what it had only begun is counted as torn. If a
    listener is at work there, that one writes. The queues of servers that still run are written as far as they are, and
    stay. Those of the audit lane need audit: on. It gives up when nothing could be written for drain_deadline_s; again
    is always allowed.

    Exit code: 0 if everything is written, 1 if something is left or could not be read, 2 if DIR is no queue directory
    or the configuration is wrong.
    """
    given = {"config_file": file, "directory": directory, "queue_directory": queue_directory}
    config = Config(**{name: value for name, value in given.items() if value is not None})
    try:
        lanes = list(_lanes(queue_directory, config))
    except OSError as error:
        raise click.UsageError(f"{queue_directory}: {error}") from None
    if not (queue_directory / LEADER_LOCK).exists() and not any(_has_files(lane.held) for lane in lanes):
        raise click.UsageError(f"{queue_directory}: no queue directory: it holds no queues, and no listener was there")
    found = _recover(lanes, config)
    # Records that go to stdout are not mixed with what is told about them.
    click.echo(json.dumps(found) if as_json else _table(found), err=config.sink == "stdout")
    is_left = any(process["left"] or process["corrupt"] for process in found["processes"])
    return FAILED if is_left or found["unreadable"] else OK


def _has_files(held: HeldQueues) -> bool:
    return bool(held.queues() or held.unreadable())


def _lanes(directory: Path, config: Config) -> Iterator[Lane]:
    """Look at every queue of the directory before a listener of this process does."""
    yield Lane("fast", HeldQueues(directory), is_served=True)
    if (directory / AUDIT_DIRECTORY).is_dir():
        yield Lane("audit", HeldQueues(directory / AUDIT_DIRECTORY), is_served=config.audit == "on")


def _recover(lanes: Sequence[Lane], config: Config) -> dict[str, Any]:
    before = [lane.held.queues() for lane in lanes]
    if any(queues for lane, queues in zip(lanes, before, strict=True) if lane.is_served):
        listeners = open_listeners(config)
        try:
            _wait([lane.held for lane in lanes if lane.is_served], config.drain_deadline_s)
        finally:
            for listener in listeners:
                listener.close(config.drain_deadline_s)
    processes = [
        _told(lane.name, then, now)
        for lane, queues in zip(lanes, before, strict=True)
        for then, now in zip(queues, lane.held.queues(), strict=True)
    ]
    return {
        "queue_directory": str(config.resolved_queue_directory),
        "recovered": sum(process["recovered"] for process in processes),
        "processes": processes,
        "unreadable": [{"file": name, "why": why} for lane in lanes for name, why in lane.held.unreadable()],
    }


def _wait(all_held: Sequence[HeldQueues], patience_s: float) -> None:
    """Wait until the queues of the dead are gone, or nothing moves any more."""
    waiting, end_s = -1, 0.0
    while dead := [queue for held in all_held for queue in held.queues() if _is_dead(queue)]:
        before, waiting = waiting, sum(queue["in_queue"] for queue in dead) + len(dead)
        if waiting != before:
            end_s = time.monotonic() + patience_s
        elif time.monotonic() >= end_s:
            return
        time.sleep(LOOK_S)


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
    summary = f"recovered={found['recovered']} processes={len(found['processes'])} from {found['queue_directory']}"
    return "\n".join([*lines, summary])
