"""How the middleware shows its counters."""

from __future__ import annotations

from typing import Literal

from inference_logging.record.config.fields import Parameters, parameter
from inference_logging.record.config.parameters.serving.health import ALLOWED_ROUTE, Route


class MetricsParameters(Parameters):
    """How the middleware shows its counters."""

    metrics_path: Route = parameter(
        None,
        "Path at which the middleware answers with metrics for Prometheus, those of all processes of the queue "
        "directory. Empty = no such route.",
        allowed=ALLOWED_ROUTE,
    )
    metrics_registry: Literal["none", "default"] = parameter(
        "none",
        "default: the metrics are also in prometheus_client's default registry while the middleware is open, so that a "
        "server's own route shows them (vLLM's with one API server); it needs the extra `metrics`. none: they are not.",
    )
