"""How the middleware says how the logging is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from inference_logging._fields import matching, none_if_empty, parameter

_ROUTE = re.compile(r"/[^?#\s]{0,255}", re.ASCII)


class HealthParameters(BaseModel):
    """How the middleware says how the logging is."""

    health_path: Annotated[str | None, BeforeValidator(none_if_empty), matching(_ROUTE)] = parameter(
        "/health/logging",
        "Path that the middleware answers itself: 200, or 503 with a reason. Empty = no such route.",
        allowed="a path that begins with '/', without '?', '#' or spaces, at most 256 characters; or empty",
    )
    health_backlog_records: int = parameter(
        10_000,
        "Records waiting in the queue above which health answers 503.",
        unit="records",
        limits=(1, 1_000_000_000),
    )
    health_clear_ratio: float = parameter(
        0.5,
        "Health answers 200 again below this share of health_backlog_records, so that it doesn't flap.",
        unit="share of health_backlog_records",
        limits=(0.0, 1.0),
    )
