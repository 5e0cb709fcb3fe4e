"""What `listen` and `recover` share: the listener of a configuration in a process that serves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from inference_logging import audit
from inference_logging._native import Service
from inference_logging.config import Config
from inference_logging.logger import open_service

OWN_QUEUE_BYTES: Final = 1 << 16
"""Of the queue for the listener's own reports (repaired and removed segments): the least there is."""


def open_listeners(config: Config) -> list[Service]:
    """Start the listener of each queue directory of ``config``, whatever that says about its own processes.

    Raises ``OpenError`` naming the parameter.
    """
    own = {
        "listener": "thread",
        "queue_bytes": OWN_QUEUE_BYTES,
        "max_record_bytes": OWN_QUEUE_BYTES // 4,
        "in_flight_slots": 0,
        "audit_queue_bytes": OWN_QUEUE_BYTES,
    }
    lanes = [open_service, audit.open_service] if config.audit == "on" else [open_service]
    opened: list[Service] = []
    try:
        opened.extend(open_lane(config.model_copy(update=own)) for open_lane in lanes)
    except OSError:
        for listener in opened:
            listener.close(0.0)
        raise
    for listener in opened:
        listener.set_only_listens()
    return opened


def of_servers(queues: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the queues that are no listener's own."""
    return [queue for queue in queues if not queue["only_listens"]]


def lost(counts: dict[str, dict[str, int]]) -> int:
    """Return how many records ``dropped`` counts; those of shutdown_deadline are in the queue still."""
    return sum(sum(levels.values()) for reason, levels in counts.items() if reason != "shutdown_deadline")
