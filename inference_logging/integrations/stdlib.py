"""A ``logging.Handler``: existing standard-library loggers put their records into the same queue."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from inference_logging.logger import ApplicationLogger, exception_attributes, get_logger

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Handler(logging.Handler):
    """Send standard-library records to the queue: ``logging.basicConfig(handlers=[Handler()])``.

    The message is formatted at once (its arguments may change later); ``extra=`` becomes attributes. Records that are
    made while one is being handled (by this package's own imports, say) are ignored, so that logging cannot recurse.
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self._loggers: dict[str, ApplicationLogger] = {}
        self._under_way = threading.local()

    def createLock(self) -> None:  # noqa: N802 - the name of logging.Handler
        """Make no lock: the queue takes records from any thread at once."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Filter and emit ``record`` without a lock, which the base class takes in any case from Python 3.13 on."""
        found: Any = self.filter(record)
        if found:
            # From Python 3.12 on a filter may give another record.
            self.emit(found if isinstance(found, logging.LogRecord) else record)
        return found

    def emit(self, record: logging.LogRecord) -> None:
        """Put ``record`` into the queue; never raises."""
        under_way = self._under_way
        if getattr(under_way, "record", None) is not None:
            return
        under_way.record = record
        try:
            self._put(record)
        except Exception:  # noqa: BLE001 - the contract of logging.Handler.emit
            self.handleError(record)
        finally:
            under_way.record = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging.Handler
        """Tell on stderr where a record was made that cannot be formatted, not what it says: that can be a secret."""
        error = sys.exc_info()[0]
        if logging.raiseExceptions and sys.stderr and error is not None:
            place = f"{record.pathname}:{record.lineno}"
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"inference_logging: a record of {place} cannot be formatted: {error.__name__}\n")

    def _put(self, record: logging.LogRecord) -> None:
        logger = self._loggers.get(record.name)
        if logger is None:
            logger = self._loggers[record.name] = get_logger(record.name)
        attributes = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            attributes.update(exception_attributes(record.exc_info))
        if record.stack_info:
            attributes["code.stacktrace"] = record.stack_info
        _method(logger, record.levelno)(record.getMessage(), **attributes)


def _method(logger: ApplicationLogger, level: int) -> Callable[..., bool]:
    if level >= logging.CRITICAL:
        return logger.critical
    if level >= logging.ERROR:
        return logger.error
    if level >= logging.WARNING:
        return logger.warning
    return logger.info if level >= logging.INFO else logger.debug
