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
from typing import Any, Final, Literal

from inference_logging import capture
from inference_logging._native import Event, Service
from inference_logging.audit import AuditLane
from inference_logging.config import Config
from inference_logging.context import REQUEST
from inference_logging.errors import AuditError, OpenError
from inference_logging.integrations.otel import span_reader
from inference_logging.redaction import redaction

SEVERITIES: Final = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
"""OpenTelemetry severity numbers of the short names."""

_open_loggers: weakref.WeakSet[Logger] = weakref.WeakSet()


class Logger:
    """The queue and listener of this process.

    Open it with ``Logger(config)``; it is a context manager. Emitting never blocks and never raises; what is refused is
    counted by reason. ``close`` drains within ``config.drain_deadline_s``; it also runs at interpreter exit.

    Raises ``OpenError`` if the queue, the sink or the thread cannot be had, naming the parameter.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config if config is not None else Config()
        self._service = open_service(self.config)
        self._audit = self._open_audit() if self.config.audit == "on" else None
        if self.config.budget_records_s:
            self._service.set_budget(self.config.budget_records_s)
        self._users = 1
        self._closed = False
        self._pid = os.getpid()
        self._opened_ns = time.monotonic_ns()
        _open_loggers.add(self)
        atexit.register(self.close)
        _close_with_child(self)
        self._make_current()

    def _open_audit(self) -> AuditLane:
        try:
            return AuditLane(self.config)
        except OSError:
            self._service.close(0.0)
            raise

    @classmethod
    def shared(cls, config: Config) -> Logger:
        """Return the open logger with this configuration, or open one; each call needs its own ``release``."""
        serving = [logger for logger in _open_loggers if not logger._closed and logger.serves(config)]
        if not serving:
            return cls(config)
        logger = max(serving, key=lambda logger: logger._opened_ns)
        logger._users += 1
        return logger

    def serves(self, config: Config) -> bool:
        """Tell whether ``shared`` may return this one for ``config``."""
        return self.config == config

    @classmethod
    def newest(cls) -> Logger:
        """Return the logger that was opened last and is open still; open one if there is none."""
        logger = max(_open_loggers, key=lambda logger: logger._opened_ns, default=None)
        return logger if logger is not None else cls.shared(Config())

    @staticmethod
    def make_newest_current() -> None:
        """Let application records go to the logger that was opened last and is open still."""
        if _open_loggers:
            Logger.newest()._make_current()

    def release(self) -> bool:
        """Give back what ``shared`` returned; the last one closes. Return whether everything was written."""
        self._users -= 1
        return self.close() if self._users <= 0 else self.flush(self.config.drain_deadline_s)

    def _make_current(self) -> None:
        active_span = span_reader() if self.config.trace_source == "auto" else None
        self._service.make_current(SEVERITIES[self.config.level], active_span)

    @property
    def service(self) -> Service:
        """The native service."""
        return self._service

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
        """Register an event and return its emit function: one value per field, in this order.

        Values are str, int, float, bool, None, bytes, ``Json``, or anything orjson encodes. The function returns
        whether the record was accepted; a wrong number of values is refused and counted as ``serialize_error``. With
        ``with_request``, records carry trace id, span id and request id of the request under way.

        With ``lane="audit"`` records are committed within ``audit_commit_interval_s``; await ``committed`` to be sure.
        The function then does as ``audit_overflow`` says, which can block for ``audit_block_s`` or raise
        ``AuditError``.

        Raises ValueError naming the event, field, severity or lane at fault, AuditError without an audit lane.
        """
        if severity not in SEVERITIES:
            raise ValueError(f"severity={severity!r}: must be one of {', '.join(SEVERITIES)}")
        if lane == "audit":
            return self._audit_lane().event(name, fields, SEVERITIES[severity], with_request=with_request)
        if lane != "fast":
            raise ValueError(f"lane={lane!r}: must be fast or audit")
        if with_request:
            return self._service.event(name, ["trace", "request_id", *fields], SEVERITIES[severity], REQUEST.get)
        return self._service.event(name, list(fields), SEVERITIES[severity])

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Make one audit record and wait until it is committed: on the device, as far as the device tells.

        It carries the ids of the request under way, then ``fields`` in their order; values as in ``event``. Every
        record that comes while one commit runs shares the next one. Returns True, or with ``audit_overflow=count``
        False for a record that was dropped or is late.

        Raises AuditError if the record is refused, if it is not committed within ``audit_block_s`` (it stays accepted),
        or if ``audit`` is off; ValueError naming an event or field that cannot be.
        """
        return await self._audit_lane().record(event, fields)

    async def committed(self) -> bool:
        """Wait until every audit record that this process has made before this call is committed; as ``audit``."""
        return await self._audit_lane().committed()

    def _audit_lane(self) -> AuditLane:
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
        end = time.monotonic() + self.config.drain_deadline_s
        written = self._service.close(self.config.drain_deadline_s)
        return (self._audit is None or self._audit.close(max(end - time.monotonic(), 0.0))) and written

    def stats(self) -> dict[str, Any]:
        """Return the counts of this process and of the listener.

        ``accepted = written + in_queue + dropped`` (torn or corrupt); ``dropped`` holds refusals by reason and level;
        ``listener`` what the leading listener of the directory publishes, whichever process it is in. ``audit`` has the
        same of the audit lane, if there is one.
        """
        counts = _counts(self._service)
        return counts if self._audit is None else {**counts, "audit": _counts(self._audit.service)}

    def backlog_records(self) -> int:
        """Return how many accepted records of all processes of the queue directory are not written yet."""
        return sum(queue["in_queue"] for queue in self._service.queues())

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ApplicationLogger:
    """Records of the application: ``log.info("loaded", model="m", seconds=2.5)``.

    The methods return whether the record was accepted; they never block and never raise. Each record carries the ids of
    the request under way. ``level`` of the configuration decides what is accepted at all. Get one with ``get_logger``.
    """

    __slots__ = ("critical", "debug", "error", "info", "name", "warning")

    debug: Callable[..., bool]
    info: Callable[..., bool]
    warning: Callable[..., bool]
    error: Callable[..., bool]
    critical: Callable[..., bool]

    def __init__(self, name: str) -> None:
        self.name = name
        levels = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "critical": "FATAL"}
        for method, severity in levels.items():
            setattr(self, method, Event.log(name, SEVERITIES[severity], REQUEST.get, _open_current))

    async def audit(self, event: str, /, **fields: object) -> bool:
        """Make one audit record and wait until it is committed; as ``Logger.audit`` of the logger opened last."""
        return await Logger.newest().audit(event, **fields)

    def exception(self, message: object, /, **attributes: object) -> bool:
        """Record an error with the exception that is being handled (OpenTelemetry's ``exception.*`` attributes)."""
        return self.error(message, **{**attributes, **exception_attributes(sys.exc_info())})


def get_logger(name: str) -> ApplicationLogger:
    """Return the application logger called ``name``, usually ``__name__``; it can be made before anything is open."""
    return ApplicationLogger(name)


def exception_attributes(
    info: tuple[type[BaseException] | None, BaseException | None, TracebackType | None],
) -> dict[str, str]:
    """Return ``exception.type``, ``exception.message`` and ``exception.stacktrace`` of what ``sys.exc_info`` gives."""
    kind, error, _ = info
    if kind is None:
        return {}
    import traceback  # only where there is an exception

    return {
        "exception.type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "exception.message": _text(error),
        "exception.stacktrace": "".join(traceback.format_exception(*info)),
    }


def _text(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the class is the application's; logging it must not raise
        return "<text that cannot be had>"


def _counts(service: Service) -> dict[str, Any]:
    books = service.books()
    return {**(books if books is not None else {}), "listener": service.listener_stats()}


def open_service(config: Config) -> Service:
    """Open the native service of a configuration. Raises ``OpenError`` naming the parameter."""
    try:
        return Service(
            queue_directory=config.resolved_queue_directory,
            queue_bytes=config.queue_bytes,
            in_flight_slots=config.in_flight_slots,
            max_record_bytes=config.max_record_bytes,
            overflow_info_ratio=config.overflow_info_ratio,
            listener=config.listener == "thread",
            sink=config.sink,
            fallback=config.fallback_sink,
            fallback_delay_s=config.fallback_delay_s,
            additional_sinks=config.additional_sinks,
            sink_buffer_bytes=config.sink_buffer_bytes,
            directory=config.directory,
            segment_prefix=config.service_name,
            flush_interval_s=config.flush_interval_s,
            flush_records=config.flush_records,
            flush_bytes=config.flush_bytes,
            rotate_bytes=config.rotate_bytes,
            rotate_interval_s=config.rotate_interval_s,
            writeback_bytes=config.writeback_bytes,
            retention_s=config.retention_s,
            quota_bytes=config.quota_bytes,
            retention_waits_for=config.resolved_retention_waits_for,
            compress_level=config.compress_level if config.compress == "zstd" else None,
            compress_keep_segments=config.compress_keep_segments,
            redaction=redaction(config),
            hash_key=capture.hash_key(config.capture_hash_key_file),
        )
    except OSError as error:
        raise OpenError(str(error)) from error


def _open_current() -> None:
    # The first application record came before anything was opened. The logger lives until the interpreter exits.
    Logger.shared(Config())


def _close_with_child(logger: Logger) -> None:
    """Close at the end of a child of multiprocessing: one that was forked runs its finalizers then, but no atexit."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        # After all that others have to do at their end, which they may want to log.
        Finalize(None, logger.close, exitpriority=-100)


def _after_fork_in_child() -> None:
    util = sys.modules.get("multiprocessing.util")
    for logger in _open_loggers:
        if util is not None:
            util.register_after_fork(logger, _close_with_child)
        logger._service.after_fork_in_child()
        if logger._audit is not None:
            logger._audit.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
