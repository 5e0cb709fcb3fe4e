"""The application's own records: ``get_logger`` and the calls of the standard library's loggers.

A call with one message and keywords is a C function from end to end. The further arguments of the standard library
(%-arguments, ``exc_info``, ``stack_info``, ``extra``, ``stacklevel``) go to ``arrange``, which turns them into such a
call.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from inference_logging._native import BoundFields, Event, LeastSeverity
from inference_logging.record.context import reader
from inference_logging.record.logger import SEVERITIES, Logger, _open_current, open_tracebacks
from inference_logging.record.tracebacks import exception_info

_METHODS: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "critical": "FATAL"}
_STANDARD_NAMES: Final = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
_LEVELS_OF_NAMES: Final = {
    "TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40, "FATAL": 50, "CRITICAL": 50,
    "NOTSET": 0,
}  # fmt: skip
_PACKAGE: Final = f"{Path(__file__).parent.parent}{os.sep}"
_MOST_SITES: Final = 1024


class ApplicationLogger:
    """Application records: ``log.info("loaded %s", name, seconds=2.5)``.

    Methods take the arguments of the standard library's loggers, and fields as further keywords. They return whether
    the record was accepted; they never block and never raise. stderr names a refused call, once per call site. Each
    record carries the ids of the current request. ``level`` of the configuration decides what is accepted at all,
    ``setLevel`` what this logger accepts. Get one with ``get_logger``.
    """

    __slots__ = ("_bound", "_least", "critical", "debug", "error", "info", "name", "warn", "warning")

    debug: Callable[..., bool]
    info: Callable[..., bool]
    warning: Callable[..., bool]
    warn: Callable[..., bool]
    error: Callable[..., bool]
    critical: Callable[..., bool]

    def __init__(self, name: str, bound: BoundFields | None = None) -> None:
        self.name = name
        self._bound = bound
        self._least = _levels.of(name)
        for method, severity in _METHODS.items():
            setattr(self, method, event(name, SEVERITIES[severity], least=self._least, bound=bound))
        self.warn = self.warning

    def exception(self, message: object, /, *args: object, exc_info: object = True, **fields: object) -> bool:
        """Record an error with the exception that is being handled (OpenTelemetry's ``exception.*`` attributes)."""
        return self.error(message, *args, exc_info=exc_info, **fields)

    def log(self, level: int, message: object, /, *args: object, **fields: object) -> bool:
        """Record ``message`` at a level of the standard library; the name of a custom level is kept."""
        fields = {**level_name(level, logging.getLevelName(level)), **fields}
        return getattr(self, method_of(level))(message, *args, **fields) is True

    def bind(self, **fields: object) -> ApplicationLogger:
        """Return a logger of the same name that adds ``fields``, with their present values, to every record."""
        return ApplicationLogger(self.name, BoundFields(self._bound, fields))

    def setLevel(self, level: int | str) -> None:  # noqa: N802 - the name of logging.Logger
        """Accept nothing below ``level`` from loggers of this name and those below it; ``NOTSET``: as configured.

        Raises ValueError for an invalid level.
        """
        number = _LEVELS_OF_NAMES.get(level.upper()) if isinstance(level, str) else level
        if type(number) is not int:
            raise ValueError(f"level={level!r}: must be a number or one of {', '.join(_LEVELS_OF_NAMES)}")
        _levels.set(self.name, severity_of(number) if number > 0 else 0)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of logging.Logger
        """Return whether a record of this level is accepted at present, as far as the level decides."""
        return severity_of(level) >= max(self._least.value, Event.least_severity())

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Make one audit record and wait until it is committed, as ``Logger.audit`` of the logger opened last."""
        return await Logger.newest().audit(event, **fields)


def get_logger(name: str) -> ApplicationLogger:
    """Return an application logger called ``name``, usually ``__name__``; nothing has to be open yet."""
    return ApplicationLogger(name)


def event(
    name: str,
    severity: int,
    *,
    least: LeastSeverity | None = None,
    bound: BoundFields | None = None,
    verbatim: bool = False,
) -> Callable[..., bool]:
    """Return the function behind ``log.info``.

    ``verbatim`` is for records of another library: every keyword is a field, whatever its name, and the configured
    ``level`` does not apply, since that library's levels have decided.
    """
    return Event.log(name, severity, reader(), _open_current, least=least, bound=bound, verbatim=verbatim)


def severity_of(level: int) -> int:
    """Return the severity number for a level of the standard library."""
    return SEVERITIES[_METHODS[method_of(level)]]


def method_of(level: int) -> str:
    """Return the method for a level of the standard library."""
    if level >= logging.CRITICAL:
        return "critical"
    if level >= logging.ERROR:
        return "error"
    if level >= logging.WARNING:
        return "warning"
    return "info" if level >= logging.INFO else "debug"


def level_name(level: int, name: str) -> dict[str, str]:
    """Return the name of a level as an attribute, if it says more than the record's severity."""
    return {} if _STANDARD_NAMES.get(level) == name else {"levelname": name}


class _Levels:
    """The levels that were set by name, and the resulting level of each existing logger."""

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        self._of: weakref.WeakValueDictionary[str, LeastSeverity] = weakref.WeakValueDictionary()

    def of(self, name: str) -> LeastSeverity:
        """Return the state that all loggers called ``name`` share."""
        least = self._of.get(name)
        if least is None:
            least = self._of[name] = LeastSeverity(self._effective(name))
        return least

    def set(self, name: str, severity: int) -> None:
        """Set the level of ``name`` and of those below it that have none of their own; 0 takes it back."""
        if severity:
            self._set[name] = severity
        else:
            self._set.pop(name, None)
        for other, least in list(self._of.items()):
            if other == name or other.startswith(f"{name}."):
                least.value = self._effective(other)

    def _effective(self, name: str) -> int:
        while name and name not in self._set:
            name = name.rpartition(".")[0]
        return self._set.get(name, 0)


_levels = _Levels()


def arrange(
    message: object, arguments: tuple[Any, ...], fields: dict[str, Any]
) -> tuple[object, dict[str, object]] | None:
    """Return message and fields of a call with further arguments; None, after a report, if they cannot be formatted."""
    try:
        given = {name: fields.pop(name) for name in ("exc_info", "stack_info") if name in fields}
        extra, level = fields.get("extra"), fields.get("stacklevel")
        if extra is None or isinstance(extra, Mapping):
            fields.pop("extra", None)
            fields = {**{str(name): value for name, value in (extra or {}).items()}, **fields}
        if arguments:
            named = len(arguments) == 1 and isinstance(arguments[0], Mapping) and arguments[0]
            message = str(message) % (arguments[0] if named else arguments)
        if type(level) is int:
            del fields["stacklevel"]
            fields |= _place(_caller(level))
        fields |= open_tracebacks().attributes(exception_info(given.get("exc_info")))
        if given.get("stack_info"):
            fields["code.stacktrace"] = open_tracebacks().stack(_caller(level if type(level) is int else 1))
    except Exception as error:  # noqa: BLE001 - a call never raises
        report_refusal(f"its message and arguments cannot be formatted ({type(error).__name__})")
        return None
    return message, fields


def _place(frame: FrameType) -> dict[str, object]:
    code = frame.f_code
    return {"code.file.path": code.co_filename, "code.line.number": frame.f_lineno, "code.function.name": code.co_name}


def _caller(level: int) -> FrameType:
    """Return the frame that called this package, or as the standard library counts it, one further out."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    while level > 1 and frame.f_back is not None:
        frame, level = frame.f_back, level - 1
    return frame


class _Refusals:
    """The call sites whose refused calls were named on stderr; beyond a limit no more are named."""

    def __init__(self) -> None:
        self._sites: set[tuple[str, int]] = set()

    def report(self, why: str) -> None:
        frame: FrameType = _caller(1)
        while frame.f_back is not None and frame.f_code.co_filename == logging._srcfile:
            frame = frame.f_back
        site = (frame.f_code.co_filename, frame.f_lineno)
        if site in self._sites or len(self._sites) >= _MOST_SITES:
            return
        self._sites.add(site)
        if sys.stderr is not None:
            # The text of the call can be a secret, so it is not shown.
            sys.stderr.write(f"inference_logging: {site[0]}:{site[1]}: this call's record is refused: {why}\n")


_refusals = _Refusals()


def report_refusal(why: str) -> None:
    """Name the refused call of this package on stderr, once per call site; never raises."""
    # stderr can be closed, or the application's own.
    with contextlib.suppress(Exception):
        _refusals.report(why)
