"""How the middleware shows its counters."""

from __future__ import annotations

from pydantic import BaseModel

from inference_logging._fields import parameter
from inference_logging.parameters.health import ALLOWED_ROUTE, Route


class MetricsParameters(BaseModel):
    """How the middleware shows its counters."""

    metrics_path: Route = parameter(
        None,
        "Path at which the middleware answers with metrics for Prometheus, those of all processes of the queue "
        "directory; it needs the extra `metrics`. Empty = no such route.",
        allowed=ALLOWED_ROUTE,
    )
