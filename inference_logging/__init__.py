"""Every request and token of an inference server on record, at a cost nobody can measure."""

from inference_logging._native import Json
from inference_logging.config import Config
from inference_logging.context import current_request
from inference_logging.errors import AuditError, ConfigError, InferenceLoggingError, OpenError
from inference_logging.integrations.stdlib import Handler
from inference_logging.logger import ApplicationLogger, Logger, get_logger
from inference_logging.middleware import InferenceLoggingMiddleware

__all__ = [
    "ApplicationLogger",
    "AuditError",
    "Config",
    "ConfigError",
    "Handler",
    "InferenceLoggingError",
    "InferenceLoggingMiddleware",
    "Json",
    "Logger",
    "OpenError",
    "current_request",
    "get_logger",
]
