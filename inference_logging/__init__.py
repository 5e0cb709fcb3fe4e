"""Record every request and streamed chunk of an inference server.

Names are imported on first use: importing this package loads nothing else, and the first configuration loads what reads
it (pydantic). Where the core does not run, ``passthrough`` has the names.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing has it, whose import takes longer than this one
if TYPE_CHECKING:
    from inference_logging._native import Json as Json
    from inference_logging._native import __version__ as __version__
    from inference_logging.errors import AuditError as AuditError
    from inference_logging.errors import ConfigError as ConfigError
    from inference_logging.errors import InferenceLoggingError as InferenceLoggingError
    from inference_logging.errors import OpenError as OpenError
    from inference_logging.record.application import ApplicationLogger as ApplicationLogger
    from inference_logging.record.application import get_logger as get_logger
    from inference_logging.record.asgi.middleware import InferenceLoggingMiddleware as InferenceLoggingMiddleware
    from inference_logging.record.config import Config as Config
    from inference_logging.record.current import current_request as current_request
    from inference_logging.record.integrations.native_logger import install_logger as install_logger
    from inference_logging.record.integrations.stdlib import Handler as Handler
    from inference_logging.record.logger import Logger as Logger

_MODULES = {
    "ApplicationLogger": "record.application",
    "AuditError": "errors",
    "Config": "record.config",
    "ConfigError": "errors",
    "Handler": "record.integrations.stdlib",
    "InferenceLoggingError": "errors",
    "InferenceLoggingMiddleware": "record.asgi.middleware",
    "Json": "_native",
    "Logger": "record.logger",
    "OpenError": "errors",
    "__version__": "_native",
    "current_request": "record.current",
    "get_logger": "record.application",
    "install_logger": "record.integrations.native_logger",
}

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
    "__version__",
    "current_request",
    "get_logger",
    "install_logger",
]


if sys.platform == "win32":
    _MODULES = {name: module if module == "errors" else "record.passthrough" for name, module in _MODULES.items()}

if not TYPE_CHECKING:  # so that a checker knows the names above and no others

    def __getattr__(name: str) -> object:
        """Import a public name, once."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
