"""How the middleware shows its counters."""

from __future__ import annotations

from typing import Literal

from inference_logging.record.config.fields import Parameters, parameter
from inference_logging.record.config.parameters.serving.health import ALLOWED_ROUTE, Route


class MetricsParameters(Parameters):
    """How the middleware shows its counters."""

    metrics_path: Route = parameter(
        None,
        "Path at which the middleware serves Prometheus metrics for all processes of the queue directory. Empty = no "
        "such route.",
        allowed=ALLOWED_ROUTE,
    )
    metrics_registry: Literal["none", "default"] = parameter(
        "none",
        "default: while the middleware is open, the metrics are also in prometheus_client's default registry, so that "
        "a server's own route shows them (vLLM's with one API server); needs the extra `metrics`.",
    )
