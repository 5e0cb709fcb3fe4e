"""A ``logging.Handler``: existing standard-library loggers put their records into the same queue."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from typing import Any, Final

from inference_logging._native import handled, prepare_records, put_record
from inference_logging.record.context import reader
from inference_logging.record.integrations.records import RECORDS
from inference_logging.record.logger import open_tracebacks

# Not of `makeLogRecord`: a factory that an application has set may add attributes.
_ATTRIBUTES: Final = tuple(vars(logging.LogRecord("", logging.NOTSET, "", 0, "", (), None)))
STANDARD_ATTRIBUTES: Final = frozenset(_ATTRIBUTES) | {"message", "asctime", "taskName"}
"""The names of a record's own attributes, which none of ``extra`` may have."""


class _UnderWay(threading.local):
    """The record that a thread is handling."""

    record: object = None


class Handler(logging.Handler):
    """Send standard-library records to the queue: ``logging.basicConfig(handlers=[Handler()])``.

    The message is formatted at once, since its arguments may change later. Attributes are those of ``extra=``, the call
    site (``code.file.path``, ``code.line.number``, ``code.function.name``), an exception's ``exception.*``, and the
    name of a custom level as ``levelname``. Records that are made while one is being handled (by this package's own
    imports, say) are ignored, so that logging cannot recurse. ``handle`` is a C function (`prepare_records`).
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self._under_way = _UnderWay()

    def createLock(self) -> None:  # noqa: N802 - the name of logging.Handler
        """Make no lock: the queue takes records from any thread at once."""
        self.lock = None

    def _filter_and_emit(self, record: logging.LogRecord) -> Any:
        """Do what ``handle`` does, where a filter, a subclass or a change has a part in it."""
        found: Any = self.filter(record)
        if found:
            # From Python 3.12 on a filter may give another record.
            self.emit(found if isinstance(found, logging.LogRecord) else record)
        return found

    def emit(self, record: logging.LogRecord) -> None:
        """Put ``record`` into the queue; never raises."""
        if not put_record(self, record):
            handled(self._emit, record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging.Handler
        """Report on stderr where an unformattable record was made, but not its text: it can be a secret."""
        error = sys.exc_info()[0]
        if logging.raiseExceptions and sys.stderr and error is not None:
            # These may be what is missing.
            place = f"{getattr(record, 'pathname', '?')}:{getattr(record, 'lineno', '?')}"
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"inference_logging: a record from {place} cannot be formatted: {error.__name__}\n")

    def _emit(self, record: logging.LogRecord) -> None:
        under_way = self._under_way
        if under_way.record is not None:
            return
        under_way.record = record
        try:
            self._put(record)
        except Exception:  # noqa: BLE001 - the contract of logging.Handler.emit
            self.handleError(record)
        finally:
            under_way.record = None

    def _put(self, record: logging.LogRecord) -> None:
        attributes = {name: value for name, value in vars(record).items() if name not in STANDARD_ATTRIBUTES}
        if record.stack_info:
            attributes["code.stacktrace"] = open_tracebacks().cut_stack(record.stack_info)
        RECORDS.put(
            record.name,
            (record.levelno, record.levelname),
            record.getMessage(),
            attributes,
            place=(record.pathname, record.lineno, record.funcName) if record.lineno else None,
            exception=record.exc_info,
        )


prepare_records(logging.LogRecord, _ATTRIBUTES, STANDARD_ATTRIBUTES, reader(), Handler())
