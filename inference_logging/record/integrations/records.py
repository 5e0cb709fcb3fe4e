"""Records of other logging libraries: the way into the queue that their handlers, processors and sinks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inference_logging.record.application import event, level_name, severity_of
from inference_logging.record.context import reader
from inference_logging.record.logger import open_tracebacks
from inference_logging.record.tracebacks import exception_info


class Records:
    """The emit functions of the loggers and severities seen so far."""

    def __init__(self) -> None:
        reader()
        self._events: dict[tuple[str, int], Callable[..., bool]] = {}

    def put(
        self,
        logger: str,
        level: tuple[int, str],
        message: object,
        attributes: dict[str, Any],
        *,
        place: tuple[object, object, object] | None,
        exception: object,
    ) -> None:
        """Put a record into the queue, whatever the names in ``attributes`` are; the dictionary is changed.

        ``level`` is its number and name, ``place`` file, line and function of the call, ``exception`` an ``exc_info``.
        """
        severity = severity_of(level[0])
        emit = self._events.get((logger, severity))
        if emit is None:
            emit = self._events[logger, severity] = event(logger, severity, verbatim=True)
        attributes.update(level_name(*level))
        if place is not None:
            attributes["code.file.path"], attributes["code.line.number"], attributes["code.function.name"] = place
        if exception:
            attributes.update(open_tracebacks().attributes(exception_info(exception)))
        emit(message, **attributes)


RECORDS: Final = Records()
"""Those of this process."""
