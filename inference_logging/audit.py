"""The audit lane: records that are on the device before whoever made them goes on.

It is the same machine a second time, a queue, a listener and its sink, with a sink that says ``Ok`` only behind an
fsync. One commit serves every record that has gathered while the last one ran, and one wake-up of an event loop serves
every record of a commit.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from inference_logging._commits import LoopCommits, ThreadCommits
from inference_logging._native import AuditQueue, Service
from inference_logging.context import REQUEST
from inference_logging.errors import AuditError, OpenError
from inference_logging.redaction import redaction

if TYPE_CHECKING:
    from inference_logging.config import Config

INFO: Final = 9
_KEY = re.compile(rb"([0-9a-f]{64})\n?")
_QUEUE_FULL: Final = -1
"""What an emit function of the lane returns when the queue is full; other reasons are below."""


class AuditLane:
    """The audit queue of this process, its listener, and those who wait for a commit.

    Raises ``OpenError`` if the queue, the sink, the key or the thread cannot be had, naming the parameter.
    """

    def __init__(self, config: Config) -> None:
        self._wait_s, self._overflow = config.audit_block_s, config.audit_overflow
        self._service = open_service(config)
        self._queue = AuditQueue(self._service, config.audit_commit_records)
        self._emitters: dict[tuple[str, ...], Callable[..., int]] = {}
        self._loops: dict[asyncio.AbstractEventLoop, LoopCommits] = {}

    @property
    def service(self) -> Service:
        """The native service of the lane."""
        return self._service

    async def record(self, event: str, fields: dict[str, Any]) -> bool:
        """Put one record into the queue and wait for its commit; as ``Logger.audit``."""
        form = (event, *fields)
        emit = self._emitters.get(form)
        if emit is None:
            emit = self._emitters[form] = self._queue.event(event, ["trace", "request_id", *fields], INFO, REQUEST.get)
        sequence = emit(*fields.values())
        if sequence < 0:
            sequence = await self._try_again(partial(emit, *fields.values()), sequence)
            if sequence < 0:
                return self._refuse(sequence, INFO)
        return await self._commits().wait(sequence + 1, self._wait_s) or self._late(sequence)

    async def committed(self) -> bool:
        """Wait until every record that this process has made so far is committed; as ``Logger.committed``."""
        accepted = self._queue.accepted
        if accepted <= self._queue.committed:
            return True
        return await self._commits().wait(accepted, self._wait_s) or self._late(accepted - 1)

    def event(self, name: str, fields: Sequence[str], severity: int, *, with_request: bool) -> Callable[..., bool]:
        """Register an event; as ``Logger.event`` with ``lane="audit"``."""
        ids, context = (["trace", "request_id"], REQUEST.get) if with_request else ([], None)
        emit = self._queue.event(name, [*ids, *fields], severity, context)

        def audit(*values: object) -> bool:
            sequence = emit(*values)
            if sequence < 0:
                sequence = self._try_again_now(partial(emit, *values), sequence)
            return sequence >= 0 or self._refuse(sequence, severity)

        return audit

    def flush(self, deadline_s: float) -> bool:
        """Wait until every record so far is committed; return whether it is, after ``deadline_s``."""
        return self._queue.wait(self._queue.accepted, deadline_s)

    def close(self, deadline_s: float) -> bool:
        """Refuse new records, commit what there is, end the listener; return whether everything was committed."""
        drained = self._service.close(deadline_s)
        for commits in self._loops.values():
            commits.close()
        self._loops = {}
        return drained

    def after_fork_in_child(self) -> None:
        """Start anew: the parent's queue, event loops and threads are not the child's."""
        self._service.after_fork_in_child()
        self._loops = {}

    def _commits(self) -> LoopCommits | ThreadCommits:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return ThreadCommits(self._queue)
        commits = self._loops.get(loop)
        if commits is None:
            for ended in [known for known in self._loops if known.is_closed()]:
                self._loops.pop(ended).close()
            commits = self._loops[loop] = LoopCommits(loop, self._queue)
        return commits

    async def _try_again(self, emit: Callable[[], int], refused: int) -> int:
        """Wait for room, where ``audit_overflow`` says so; return a sequence, or what refused the record at last."""
        end = time.monotonic() + self._wait_s if self._overflow == "block" else 0.0
        while refused == _QUEUE_FULL and (left_s := end - time.monotonic()) > 0:
            await self._commits().wait_for_room(left_s)
            refused = emit()
        return refused

    def _try_again_now(self, emit: Callable[[], int], refused: int) -> int:
        end = time.monotonic() + self._wait_s if self._overflow == "block" else 0.0
        while refused == _QUEUE_FULL and (left_s := end - time.monotonic()) > 0:
            self._queue.wait(self._queue.committed + 1, left_s)
            refused = emit()
        return refused

    def _refuse(self, refused: int, severity: int) -> bool:
        position = -1 - refused
        self._queue.count_refused(position, severity)
        if self._overflow == "count":
            return False
        reason = self._queue.reasons[position]
        waited = f" after audit_block_s={self._wait_s:g}" if (reason, self._overflow) == ("queue_full", "block") else ""
        raise AuditError(f"an audit record was refused{waited}: {reason}", reason)

    def _late(self, sequence: int) -> bool:
        if self._overflow == "count":
            return False
        raise AuditError(
            f"audit record {sequence} was not committed within audit_block_s={self._wait_s:g}; it is accepted, stays "
            "in the queue and is written once the disk takes it",
            "not_committed",
        )


def open_service(config: Config) -> Service:
    """Open the queue and the listener of the audit lane alone.

    Raises ``OpenError`` as ``AuditLane``.
    """
    directory, name = config.resolved_audit_directory, f"{config.service_name}-audit"
    chain = None if config.audit_chain == "off" else config.audit_chain
    key = _read_key(config)
    writer = None
    if config.audit_sink == "sqlite":
        from inference_logging.audit_sqlite import SqliteWriter  # sqlite3 only where it is asked for

        writer = SqliteWriter(directory / f"{name}.sqlite", chain, key)
    try:
        return Service(
            queue_directory=config.resolved_queue_directory / "audit",
            queue_bytes=config.audit_queue_bytes,
            in_flight_slots=0,
            max_record_bytes=min(config.max_record_bytes, config.audit_queue_bytes // 4),
            overflow_info_ratio=1.0,
            listener=config.listener == "thread",
            sink=config.audit_sink,
            fallback=None,
            fallback_delay_s=config.fallback_delay_s,
            additional_sinks=(),
            sink_buffer_bytes=config.sink_buffer_bytes,
            directory=directory,
            segment_prefix=name,
            flush_interval_s=config.audit_commit_interval_s,
            flush_records=config.audit_commit_records,
            flush_bytes=config.flush_bytes,
            rotate_bytes=config.rotate_bytes,
            rotate_interval_s=config.rotate_interval_s,
            writeback_bytes=config.writeback_bytes,
            retention_s=0.0,
            quota_bytes=0,
            retention_waits_for=(),
            compress_level=config.compress_level if config.compress == "zstd" else None,
            compress_keep_segments=config.compress_keep_segments,
            redaction=redaction(config),
            durable=True,
            chain=chain,
            chain_key=key,
            writer=writer,
        )
    except OSError as error:
        raise OpenError(f"audit lane: {error}") from error


def _read_key(config: Config) -> bytes | None:
    path = config.audit_chain_key_file
    if path is None or config.audit_chain == "off":
        return None
    try:
        match = _KEY.fullmatch(path.read_bytes())
    except OSError as error:
        raise OpenError(f"audit_chain_key_file={path}: {error}") from error
    if match is None:
        raise OpenError(f"audit_chain_key_file={path}: must hold 64 lowercase hexadecimal digits")
    return bytes.fromhex(match[1].decode())
