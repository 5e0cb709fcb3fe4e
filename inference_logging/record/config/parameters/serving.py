"""What the middleware answers by itself: the state of the logging and its thresholds, and metrics."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import Parameters, matching, none_if_empty, parameter

_ROUTE = re.compile(r"/[^?#\s]{0,255}", re.ASCII)
ALLOWED_ROUTE = "a path that begins with '/', without '?', '#' or spaces, at most 256 characters; or empty"

Route = Annotated[str | None, BeforeValidator(none_if_empty), matching(_ROUTE)]


class HealthParameters(Parameters):
    """How the middleware reports the state of the logging, and the thresholds of that state."""

    open_failure: Literal["refuse", "serve"] = parameter(
        "refuse",
        "What an ASGI server does if its log cannot be opened in a configured directory or queue_directory. refuse: it "
        "does not start; serve: it serves without a log, says so on stderr and in health (degraded) and metrics, and "
        "tries again. If neither was configured, or the queue has no room, it serves in any case. With audit it never "
        "does.",
    )
    health_path: Route = parameter(
        "/health/logging",
        "Readiness path of the middleware: 200 while the logging is ok or pressured, 503 with Retry-After and the "
        "reasons while it is degraded or stuck. Empty = no such route.",
        allowed=ALLOWED_ROUTE,
    )
    liveness_path: Route = parameter(
        "/health/logging/live",
        "Liveness path of the middleware: 503 only if the listener should make progress and does not, never because of "
        "a failing sink. Empty = no such route.",
        allowed=ALLOWED_ROUTE,
    )
    wrap_health_path: Route = parameter(
        None,
        "Path of the server's own health route (for vLLM: /health), whose answers get the header "
        "inference-logging-state. Empty = none.",
        allowed=ALLOWED_ROUTE,
    )
    wrap_health: Literal["header", "status"] = parameter(
        "header",
        "What wrap_health_path adds. header: only the state; status: also 503 with Retry-After instead of a 2xx while "
        "readiness answers 503. Any other status is never changed.",
    )
    health_backlog_records: int = parameter(
        10_000,
        "Number of waiting records, over all processes, from which the logging is degraded.",
        unit="records",
        limits=(1, 1_000_000_000),
    )
    health_backlog_ratio: float = parameter(
        0.5,
        "Fill of the fullest process's queue from which the logging is degraded.",
        unit="share of queue_bytes",
        limits=(0.01, 1.0),
    )
    health_pressured_ratio: float = parameter(
        0.5,
        "Share of health_backlog_records and health_backlog_ratio from which the logging is pressured; 1 = degraded at "
        "once.",
        unit="share of the thresholds",
        limits=(0.01, 1.0),
        advanced=True,
    )
    health_clear_ratio: float = parameter(
        0.5,
        "Share of a reached threshold to which the value must fall to clear it, so that health doesn't flap.",
        unit="share of the thresholds",
        limits=(0.0, 1.0),
        advanced=True,
    )
    health_oldest_age_s: float = parameter(
        30.0,
        "Age of the oldest waiting record, beyond flush_interval_s, from which the logging is pressured.",
        unit="s",
        limits=(0.1, 86_400.0),
        advanced=True,
    )
    stuck_after_s: float = parameter(
        30.0,
        "Time without a round of the listener, while records wait, after which the logging is stuck.",
        unit="s",
        limits=(1.0, 86_400.0),
        advanced=True,
    )


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
