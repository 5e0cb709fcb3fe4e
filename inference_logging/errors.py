"""Errors raised early: while configuring, opening and reading. The request path never raises.

Internal: users import its names from ``inference_logging``.
"""

from __future__ import annotations

from collections.abc import Iterable


class InferenceLoggingError(Exception):
    """Base of every error this package raises."""


class ConfigError(InferenceLoggingError, ValueError):
    """A configuration that can't be used.

    Raised while a ``Config`` is built. Retrying can't help: the value has to be changed. ``problems`` holds one
    sentence per wrong value: the parameter, where its value came from, the value and what is allowed. The message shows
    all of them, so that one restart can correct several mistakes.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(("inference_logging is configured wrongly:", *(f"  {p}" for p in self.problems))))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        """Rebuild from the problems, so that a worker process can hand the error to its parent."""
        return type(self), (self.problems,)


class OpenError(InferenceLoggingError, OSError):
    """The queue, the sink or the listener thread is not available; the message names the parameter.

    Raised while a ``Logger`` is opened. Retrying helps once the cause (a full or missing file system, permissions) is
    gone.
    """


class AuditError(InferenceLoggingError):
    """An audit record was refused, or was not committed in time; ``reason`` says which.

    ``reason`` is ``not_committed`` (accepted, and written later if the disk takes it), the queue's reason for refusing
    it (``queue_full``, ``oversize``, …), or ``too_many_events`` (names of events are kinds: values that change from
    call to call belong in fields). Raised by ``Logger.audit`` and by events of the audit lane, unless
    ``audit_overflow`` is ``count``. The middleware answers it with 503 if the answer has not begun. Retrying helps once
    there is room.
    """

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)

    def __reduce__(self) -> tuple[type[AuditError], tuple[str, str]]:
        """Rebuild from the parts, so that a worker process can hand the error to its parent."""
        return type(self), (str(self), self.reason)


class MissingExtraError(InferenceLoggingError, ImportError):
    """A package that only an extra of this package installs is missing; the message names both.

    Raised where the package is first needed, never at import. Retrying helps once the extra is installed.
    """

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        self.purpose, self.package, self.extra = purpose, package, extra
        super().__init__(f"{purpose} needs {package}: pip install 'inferlog[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """Rebuild from the parts, so that a worker process can hand the error to its parent."""
        return type(self), (self.purpose, self.package, self.extra)


class CorruptLineError(InferenceLoggingError, ValueError):
    """A line of a segment that is not a record: damaged, or not written by the listener.

    Raised while segments are read. ``path`` and ``line_number`` (from 1) name the place; the rest of the segment can be
    read by giving ``on_corrupt``.
    """

    def __init__(self, path: str, line_number: int, reason: str) -> None:
        self.path, self.line_number, self.reason = path, line_number, reason
        super().__init__(f"{path}:{line_number}: {reason}")

    def __reduce__(self) -> tuple[type[CorruptLineError], tuple[str, int, str]]:
        """Rebuild from the parts, so that a worker process can hand the error to its parent."""
        return type(self), (self.path, self.line_number, self.reason)
