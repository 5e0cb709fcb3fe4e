"""The state of the logging, from one look at the queue directory: ok, pressured, producer_died, degraded or stuck.

The rule is native (``native/listen/src/status/health.rs``), so that a process without Python gives the same answers.
Here is what a `Watch` takes from the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from inference_logging._native import Health, HealthReason, HealthWatch, Service

if TYPE_CHECKING:
    from inference_logging.record.config import Config

__all__ = ["STATES", "Answer", "Health", "HealthReason", "State", "Watch"]

State = Literal["ok", "pressured", "producer_died", "degraded", "stuck"]
STATES: Final[tuple[State, ...]] = ("ok", "pressured", "producer_died", "degraded", "stuck")
"""From well to worst."""
Answer = tuple[int, bytes, int]
"""A probe's answer: status, JSON body, and the seconds after which to ask again."""


class Watch:
    """Looks at the logging of a queue directory from one process, and remembers what the next look needs."""

    def __init__(self, config: Config, service: Service, *, audit: Service | None = None) -> None:
        self.native = HealthWatch(
            service,
            audit,
            listens=config.listener == "thread",
            backlog_records=config.health_backlog_records,
            backlog_ratio=config.health_backlog_ratio,
            pressured_ratio=config.health_pressured_ratio,
            clear_ratio=config.health_clear_ratio,
            oldest_age_s=config.flush_interval_s + config.health_oldest_age_s,
            audit_oldest_age_s=config.audit_commit_interval_s + config.health_oldest_age_s,
            stuck_after_s=config.stuck_after_s,
        )

    def recent(self) -> Health:
        """Return what the last look saw, or look where that is a quarter of a second ago."""
        return self.native.recent()

    def look(self) -> Health:
        """Look now and grade what is seen; the audit lane's reasons count like those of the fast one."""
        return self.native.look()
