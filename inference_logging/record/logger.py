"""The facade that all hooks use: open, register events, emit, flush, close; and the application's own records.

A ``Logger`` is the queue and (unless another process listens) the listener thread of this process. It is opened
explicitly, by the middleware, or by the first application record. A forked child gets a queue of its own at its first
record.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from inference_logging._native import Service, forget_handled_records
from inference_logging.errors import AuditError
from inference_logging.record.context import reader
from inference_logging.record.off import NoAuditLane, NoService
from inference_logging.record.otel import span_reader
from inference_logging.record.service import open_service
from inference_logging.record.settings import settings
from inference_logging.record.tracebacks import Tracebacks
from inference_logging.record.waiting import WAITING

if TYPE_CHECKING:
    from inference_logging.record.audit import AuditLane
    from inference_logging.record.config import Config

SEVERITIES: Final = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
"""OpenTelemetry severity numbers of the short names."""

_open_loggers: weakref.WeakSet[Logger] = weakref.WeakSet()


class Logger:
    """The queue and listener of this process.

    Open it with ``Logger(config)``; it is a context manager. Emitting never blocks and never raises; refused records
    are counted by reason. ``close`` drains within ``config.drain_deadline_s``; it also runs at interpreter exit.

    Raises ``OpenError`` if the queue, the sink or the thread is not available, naming the parameter.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config if config is not None else _configured()
        self._service: Service | NoService
        self._audit: AuditLane | NoAuditLane | None
        if self.config.enabled == "off":
            self._service, self._audit = NoService(), NoAuditLane() if self.config.audit == "on" else None
        else:
            self._service = open_service(self.config)
            _report_others(self.config)
            self._audit = self._open_audit() if self.config.audit == "on" else None
        self.tracebacks = Tracebacks(self.config.stack_frames, self.config.max_record_bytes)
        self._users = 1
        self.has_start_record = False
        """Whether `server.started` was made."""
        self._closed = False
        self._pid = os.getpid()
        self._opened_ns = time.monotonic_ns()
        _open_loggers.add(self)
        atexit.register(self.close)
        _close_with_child(self)
        self._begin_as_current()

    def _open_audit(self) -> AuditLane:
        from inference_logging.record.audit import AuditLane  # only where it is on: asyncio takes its time

        try:
            return AuditLane(self.config)
        except OSError:
            self._service.close(0.0)
            raise

    @classmethod
    def shared(cls, config: Config) -> Logger:
        """Return the open logger with this configuration, or open one; each call needs its own ``release``."""
        logger = cls._serving(config)
        logger._users += 1
        return logger

    @classmethod
    def _serving(cls, config: Config) -> Logger:
        """As ``shared``, for a caller that never releases: the last ``release`` in this process closes it."""
        serving = [logger for logger in _open_loggers if not logger._closed and logger.serves(config)]
        if serving:
            return max(serving, key=lambda logger: logger._opened_ns)
        logger = cls(config)
        logger._users = 0
        return logger

    def serves(self, config: Config) -> bool:
        """Return whether ``shared`` may return this one for ``config``."""
        return self.config == config

    @classmethod
    def newest(cls) -> Logger:
        """Return the open logger that was opened last; open one if there is none."""
        logger = max(_open_loggers, key=lambda logger: logger._opened_ns, default=None)
        return logger if logger is not None else cls._serving(_configured())

    @staticmethod
    def make_newest_current() -> None:
        """Send application records to the open logger that was opened last."""
        if _open_loggers:
            Logger.newest()._make_current()

    def release(self) -> bool:
        """Release what ``shared`` returned; the last release closes it. Return whether everything was written.

        The very last one also closes the loggers without a user: an application record opened them, and a server that
        ends by a signal runs no ``atexit``.
        """
        self._users -= 1
        if self._users > 0:
            return self.flush(self.config.drain_deadline_s)
        written = self.close()
        if any(logger._users > 0 for logger in _open_loggers):
            return written
        return all([written, *(logger.close() for logger in list(_open_loggers))])

    def _begin_as_current(self) -> None:
        WAITING.note(self.config)
        self._make_current(takes_waiting=True)

    def _make_current(self, *, takes_waiting: bool = False) -> None:
        active_span = span_reader() if self.config.trace_source == "auto" else None
        self._service.make_current(SEVERITIES[self.config.level], active_span, takes_waiting)

    @property
    def service(self) -> Service:
        """The native service; where ``enabled`` is off, what stands for it."""
        return cast("Service", self._service)

    @property
    def audit_service(self) -> Service | None:
        """The native service of the audit lane, if there is one."""
        return self._audit.service if self._audit is not None else None

    def event(
        self,
        name: str,
        fields: Sequence[str],
        *,
        severity: str = "INFO",
        with_request: bool = False,
        lane: Literal["fast", "audit"] = "fast",
    ) -> Callable[..., bool]:
        """Register an event and return its emit function, which takes one value per field, in this order.

        Values are str, int, float, bool, None, bytes, ``Json``, or anything orjson encodes. The function returns
        whether the record was accepted; a wrong number of values is refused and counted as ``serialize_error``. With
        ``with_request``, records carry trace id, span id and request id of the current request.

        With ``lane="audit"`` records are committed within ``audit_commit_interval_s``; await ``committed`` to be sure.
        The function then follows ``audit_overflow``: it can block for ``audit_block_s`` or raise ``AuditError``.

        Raises ValueError naming the event, field, severity or lane at fault, AuditError without an audit lane.
        """
        if severity not in SEVERITIES:
            raise ValueError(f"severity={severity!r}: must be one of {', '.join(SEVERITIES)}")
        if lane == "audit":
            return self._audit_lane().event(name, fields, SEVERITIES[severity], with_request=with_request)
        if lane != "fast":
            raise ValueError(f"lane={lane!r}: must be fast or audit")
        if with_request:
            return self._service.event(name, ["trace", "request_id", *fields], SEVERITIES[severity], reader())
        return self._service.event(name, list(fields), SEVERITIES[severity])

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Make one audit record and wait until it is committed: on the device, as far as the device reports.

        It carries the ids of the current request, then ``fields`` in their order; values as in ``event``. From the 17th
        list of field names on, an event has its fields in the map ``attributes``. Records that come while one commit
        runs share the next one. Returns True, or with ``audit_overflow=count`` False for a record that was dropped or
        is late.

        Raises AuditError if the record is refused, if it is not committed within ``audit_block_s`` (it stays accepted),
        or if ``audit`` is off; ValueError naming an invalid event or field.
        """
        return await self._audit_lane().record(event, fields)

    async def committed(self) -> bool:
        """Wait until all audit records that this process made before this call are committed; as ``audit``."""
        return await self._audit_lane().committed()

    def _audit_lane(self) -> AuditLane | NoAuditLane:
        if self._audit is None:
            raise AuditError("there is no audit lane: the parameter audit is off", "off")
        return self._audit

    def flush(self, deadline_s: float = 5.0) -> bool:
        """Wait until everything accepted before this call is written; return whether it is, after ``deadline_s``.

        Records of the audit lane are committed then.
        """
        end = time.monotonic() + deadline_s
        written = self._service.flush(deadline_s)
        return (self._audit is None or self._audit.flush(max(end - time.monotonic(), 0.0))) and written

    def close(self) -> bool:
        """Refuse new records, drain, end the listener; idempotent. Return whether everything was written."""
        if self._closed:
            return True
        self._closed = True
        _open_loggers.discard(self)
        atexit.unregister(self.close)
        # Before this one's end: a record that is made meanwhile finds a logger that takes it.
        self.make_newest_current()
        end = time.monotonic() + self.config.drain_deadline_s
        written = self._service.close(self.config.drain_deadline_s)
        return (self._audit is None or self._audit.close(max(end - time.monotonic(), 0.0))) and written

    def stats(self) -> dict[str, Any]:
        """Return the counts of this process and of the listener.

        ``accepted = written + in_queue + dropped`` (torn or corrupt); ``dropped`` has refusals by reason and level,
        ``listener`` what the directory's leading listener publishes, in whichever process it runs. ``audit`` has the
        same for the audit lane, if there is one.
        """
        counts = _counts(self._service)
        audit = self.audit_service
        return counts if audit is None else {**counts, "audit": _counts(audit)}

    def backlog_records(self) -> int:
        """Return how many accepted records, over all processes of the queue directory, are not written yet."""
        return sum(queue["in_queue"] for queue in self._service.queues())

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_tracebacks() -> Tracebacks:
    """Return the limits of exceptions as the logger has them that was opened last and is open still, else the usual."""
    logger = max(_open_loggers, key=lambda logger: logger._opened_ns, default=None)
    return logger.tracebacks if logger is not None else Tracebacks()


def _counts(service: Service | NoService) -> dict[str, Any]:
    books = service.books()
    return {**(books if books is not None else {}), "listener": service.listener_stats()}


def _report_others(config: Config) -> None:
    for sentence in settings(config).left_by_others():
        sys.stderr.write(f"inference_logging: {sentence}\n")


def _configured() -> Config:
    from inference_logging.record.config import Config  # only where a configuration is read: pydantic takes its time

    return Config()


def _open_current() -> None:
    # An application record was made while nothing is open. A logger that opens here lives until the last user of any
    # logger releases it, or the interpreter exits.
    config = WAITING.configuration(lambda wanted: Logger(wanted).close())
    if config is not None:
        Logger._serving(config)


def _close_with_child(logger: Logger) -> None:
    """Close at the end of a child of multiprocessing: one that was forked runs its finalizers then, but no atexit."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        # After the work that others do at their end, which they may want to log.
        Finalize(None, logger.close, exitpriority=-100)


def _after_fork_in_child() -> None:
    forget_handled_records()
    WAITING.after_fork_in_child()
    util = sys.modules.get("multiprocessing.util")
    for logger in _open_loggers:
        if util is not None:
            util.register_after_fork(logger, _close_with_child)
        logger._service.after_fork_in_child()
        if logger._audit is not None:
            logger._audit.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
