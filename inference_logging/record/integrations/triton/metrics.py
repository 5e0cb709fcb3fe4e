"""A model instance's own counts as custom metrics of Triton, on Triton's metrics port.

Each update calls the server and takes some 20 µs, so there is one in `INTERVAL_S`, within a call of ``execute``. The
counts of all processes together are on the listener's own endpoint, which costs a model nothing.
"""

from __future__ import annotations

import time
from typing import Any, Final

from inference_logging._native import Service

INTERVAL_S: Final = 10.0

_COUNTERS: Final = {
    "inference_logging_records_accepted_total": "Records of this model instance that were put into its queue",
    "inference_logging_records_dropped_total": "Records of this model instance that were refused or lost",
}
_IN_QUEUE: Final = "inference_logging_queue_records"


class TritonMetrics:
    """The metrics of one model instance, by its name."""

    def __init__(self, backend: Any, service: Service, producer: str) -> None:
        """Make them in ``backend`` (``triton_python_backend_utils``)."""
        self._service = service
        self._due_s = 0.0
        family, labels = backend.MetricFamily, {"producer": producer}
        # The families live as long as the metrics are shown.
        self._families = [
            *(family(name=name, description=text, kind=family.COUNTER) for name, text in _COUNTERS.items()),
            family(name=_IN_QUEUE, description="Records of this model instance that wait", kind=family.GAUGE),
        ]
        self._accepted, self._dropped, self._in_queue = (one.Metric(labels=labels) for one in self._families)
        self._reported = [0, 0]

    def update(self) -> None:
        """Report the counts since the last time, if that is long enough ago. Raises what Triton raises."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        books = self._service.books()
        if books is None:
            return
        counts = [books["accepted"], sum(sum(levels.values()) for levels in books["dropped"].values())]
        for metric, count, reported in zip((self._accepted, self._dropped), counts, self._reported, strict=True):
            if count > reported:
                metric.increment(count - reported)
        self._reported = counts
        self._in_queue.set(books["in_queue"])
