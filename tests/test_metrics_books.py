"""The books: what queues gave out is what sinks took, whatever the listener writes besides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from inference_logging import Logger
from inference_logging.metrics import InferenceLoggingCollector
from tests.support import Recorded


def difference(logger: Logger) -> dict[str, float]:
    """Return the difference of each lane's books."""
    families = {family.name: family for family in InferenceLoggingCollector(logger).collect()}
    samples = families["inference_logging_books_difference_records"].samples
    return {sample.labels["lane"]: sample.value for sample in samples}


def test_lines_of_the_listeners_own_are_in_no_books(recorded: Recorded) -> None:
    emit = recorded.logger.event("large", ["text"])
    assert emit("small")
    assert not emit("x" * recorded.config.max_record_bytes)
    assert len(recorded.records("log.dropped")) == 1
    stats = recorded.logger.service.listener_stats()
    assert (stats["records_written"], stats["taken_from_queues"]) == (2, 1)
    assert difference(recorded.logger) == {"fast": 0}


def test_each_lane_has_its_books(open_: Callable[..., Logger]) -> None:
    logger = open_()
    asyncio.run(logger.audit("policy.decision", user="u"))
    assert logger.flush(60)
    assert logger.audit_service is not None
    assert logger.audit_service.listener_stats()["taken_from_queues"] == 1
    assert difference(logger) == {"fast": 0, "audit": 0}
