"""What a ``model.py`` of Triton's Python backend imports: ``from inference_logging.triton import log_requests``."""

from inference_logging.record.integrations.triton.requests import RequestLog, log_requests, outgoing, usage

__all__ = ["RequestLog", "log_requests", "outgoing", "usage"]
