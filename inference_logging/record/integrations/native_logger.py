"""``install_logger``: the standard library's loggers put their records into the queue without a ``LogRecord``.

A record reaches the queue exactly where it would without: the logger, or one above it, has our ``Handler``. If that
handler alone would see the record, no ``LogRecord`` is made. If another handler, a filter, a changed method or another
class of records has a part in it, the standard library's own method is called, and everything is as always.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from inference_logging._native import add_logger_methods
from inference_logging.record.context import reader
from inference_logging.record.integrations.stdlib import STANDARD_ATTRIBUTES, Handler


class NativeLogger(logging.Logger):
    """A logger of the standard library whose methods are C functions."""


class NativeRootLogger(NativeLogger, logging.RootLogger):
    """The root logger with such methods."""


_NATIVE: Final = {logging.Logger: NativeLogger, logging.RootLogger: NativeRootLogger}
_PLAIN: Final = {native: plain for plain, native in _NATIVE.items()}

add_logger_methods(NativeLogger, NativeRootLogger, Handler(), STANDARD_ATTRIBUTES, reader())


def install_logger() -> Callable[[], None]:
    """Let the standard library's loggers put their records into the queue without a ``LogRecord``.

    Existing loggers change their class, later ones get the new class, and the root logger gets a ``Handler`` unless it
    has one. Loggers of an application's own class are left alone, and so are such a class set for later loggers and all
    levels. Returns a function that undoes this call's changes; a further call changes what is new since.
    """
    with ExitStack() as changes:
        if logging.getLoggerClass() is logging.Logger:
            logging.setLoggerClass(NativeLogger)
            changes.callback(_restore)
        for logger in _loggers():
            if type(logger) in _NATIVE:
                _change(logger, _NATIVE)
                changes.callback(_change, logger, _PLAIN)
        root = logging.getLogger()
        if not any(isinstance(handler, Handler) for handler in root.handlers):
            handler = Handler()
            root.addHandler(handler)
            changes.callback(root.removeHandler, handler)
        return changes.pop_all().close


def _restore() -> None:
    if logging.getLoggerClass() is NativeLogger:
        logging.setLoggerClass(logging.Logger)
    for logger in _loggers():
        _change(logger, _PLAIN)


def _change(logger: logging.Logger, classes: Mapping[type[logging.Logger], type[logging.Logger]]) -> None:
    logger.__class__ = classes.get(type(logger), type(logger))


def _loggers() -> list[logging.Logger]:
    """Return the root logger and those that its manager has made; the others in it only hold a place."""
    root = logging.getLogger()
    made = list(logging.Logger.manager.loggerDict.values())
    return [root, *(logger for logger in made if isinstance(logger, logging.Logger))]
