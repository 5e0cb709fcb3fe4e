"""What `listen` and `recover` share: the listener of a configuration in a process that serves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference_logging._native import Service
from inference_logging.config import Config
from inference_logging.service import Lane, open_service


def open_listeners(config: Config, *, claims: bool = True) -> list[Service]:
    """Start the listener of each queue directory of ``config``, whatever that says about its own processes.

    Without ``claims`` they may be another configuration's. Raises ``OpenError`` naming the parameter.
    """
    lanes: tuple[Lane, ...] = ("fast", "audit") if config.audit == "on" else ("fast",)
    opened: list[Service] = []
    try:
        opened.extend(open_service(config, lane, claims=claims, only_listens=True) for lane in lanes)
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
