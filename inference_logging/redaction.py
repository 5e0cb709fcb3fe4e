"""What the listener of every lane replaces in lines before anything reaches a sink."""

from __future__ import annotations

from inference_logging._native import Redaction
from inference_logging.config import Config


def redaction(config: Config) -> Redaction:
    """Compile what ``config`` redacts, for a listener."""
    return Redaction(config.redact_fields, config.redact_patterns, config.redact_custom, config.redact_replacement)
