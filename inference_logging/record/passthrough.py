"""The public names where the core does not run (Windows): nothing is recorded, and nothing is in the way.

An application that imports and mounts what it will use on its servers starts and answers as without it. One line on
stderr says that no records are kept. Every call that would return whether a record was accepted returns false.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any

__all__ = [
    "ApplicationLogger",
    "Config",
    "Handler",
    "InferenceLoggingMiddleware",
    "Json",
    "Logger",
    "__version__",
    "current_request",
    "get_logger",
    "install_logger",
]

__version__ = metadata.version("inferlog")


def _refuse(*_arguments: object, **_fields: object) -> bool:
    return False


class Config:
    """Parameters, which nothing reads or checks here."""

    def __init__(self, **parameters: object) -> None:
        self.__dict__.update(parameters)


class InferenceLoggingMiddleware:
    """Passes every request through."""

    def __init__(self, app: Callable[..., Awaitable[Any]], config: object = None) -> None:
        self.app = app
        self.config = config

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Call the application."""
        return await self.app(scope, receive, send)


class Logger:
    """Accepts no records."""

    def __init__(self, config: object = None) -> None:
        self.config = config
        self.backlog_records = 0

    def event(self, name: str, fields: object = (), **_options: object) -> Callable[..., bool]:
        """Return a function that takes one value per field and accepts no record."""
        return _refuse

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Return false: there is no audit lane."""
        return False

    async def committed(self) -> bool:
        """Return false: there is no audit lane."""
        return False

    def flush(self, deadline_s: float = 5.0) -> bool:
        """Return true: everything that was accepted is written."""
        return True

    def close(self) -> bool:
        """Return true, as ``flush``."""
        return True

    def stats(self) -> dict[str, Any]:
        """Return no counts."""
        return {}

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_exception: object) -> None:
        """End nothing."""


class ApplicationLogger:
    """Accepts no records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.debug = self.info = self.warning = self.warn = self.error = self.critical = _refuse
        self.exception = self.log = _refuse

    def bind(self, **_fields: object) -> ApplicationLogger:
        """Return this logger."""
        return self

    def setLevel(self, level: int | str) -> None:  # noqa: N802 - the name of logging.Logger
        """Change nothing."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of logging.Logger
        """Return false."""
        return False

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Return false: there is no audit lane."""
        return False


class Handler(logging.NullHandler):
    """Drops every record."""


class Json:
    """A text that is JSON already."""

    def __init__(self, text: str | bytes) -> None:
        self.text = text


def get_logger(name: str) -> ApplicationLogger:
    """Return a logger that accepts no records."""
    return ApplicationLogger(name)


def install_logger() -> Callable[[], None]:
    """Leave the standard library's loggers as they are; return what undoes that."""
    return lambda: None


def current_request() -> None:
    """Return None: no request is observed."""


sys.stderr.write(f"inference_logging: no records are kept on {sys.platform}: requests pass through\n")
