"""The replacements of queue, listener and audit lane if ``enabled`` is off: all of them do nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from inference_logging._native import switch_off


class NoService:
    """A service without a queue and without a listener."""

    def event(self, *_of_an_event: object) -> Callable[..., bool]:
        """Return a function that accepts nothing."""
        return _refuse

    def make_current(self, *_arguments: object) -> None:
        """Let application records go nowhere."""
        switch_off(True)

    def books(self) -> dict[str, Any]:
        """Return counts of nothing."""
        counts = dict.fromkeys(("accepted", "written", "in_queue", "bytes_in_queue"), 0)
        return {"boot_id": "0" * 16, "pid": os.getpid(), **counts, "sampled_out": {}, "dropped": {}}

    def listener_stats(self) -> dict[str, Any]:
        """Say that nobody listens."""
        return {"leader": "nobody"}

    def queues(self) -> list[dict[str, Any]]:
        """Return none."""
        return []

    def flush(self, _deadline_s: float) -> bool:
        """Wait for nothing."""
        return True

    def close(self, _deadline_s: float) -> bool:
        """Let application records look for a logger again."""
        switch_off(False)
        return True

    def set_producer_name(self, _name: str) -> None:
        """Name nobody."""

    def after_fork_in_child(self) -> None:
        """Start nothing."""


class NoAuditLane:
    """An audit lane that commits nothing, and returns False."""

    service = None

    async def record(self, _event: str, _fields: dict[str, Any]) -> bool:
        """Accept nothing."""
        return False

    async def committed(self) -> bool:
        """Wait for nothing."""
        return True

    def event(self, *_of_an_event: object, with_request: bool) -> Callable[..., bool]:  # noqa: ARG002
        """Return a function that accepts nothing."""
        return _refuse

    def flush(self, _deadline_s: float) -> bool:
        """Wait for nothing."""
        return True

    def close(self, _deadline_s: float) -> bool:
        """End nothing."""
        return True

    def after_fork_in_child(self) -> None:
        """Start nothing."""


class NoModelLog:
    """The requests of a model instance, none of them recorded."""

    def begin(self, _requests: Sequence[Any]) -> list[Any]:
        """Begin no record."""
        return []

    def end(self, _begun: list[Any], _responses: Sequence[Any] | None) -> None:
        """End no record."""

    def serve(self, execute: Callable[[Any, Any], Any], model: object, requests: Sequence[Any]) -> Any:
        """Call ``execute`` as Triton does."""
        return execute(model, requests)

    def find(self, _request: Any) -> None:
        """Find nothing."""

    def close(self) -> None:
        """End nothing."""


def _refuse(*_values: object) -> bool:
    return False
