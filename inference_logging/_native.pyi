from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias, final

__all__ = [
    "AuditQueue",
    "CommitWatch",
    "EngineReader",
    "Event",
    "HeldQueues",
    "Json",
    "LineChain",
    "ModelLog",
    "ModelRequest",
    "Redaction",
    "RequestFactory",
    "RequestIds",
    "RequestObserver",
    "RuntimeControl",
    "Sampler",
    "Service",
    "TextCapture",
    "verify",
]

@final
class Json:
    def __new__(cls, encoded: str | bytes) -> Json: ...

@final
class Redaction:
    def __new__(
        cls, fields: Sequence[str], patterns: Sequence[str], custom: Sequence[tuple[str, str]], replacement: str
    ) -> Redaction: ...

@final
class Event:
    @staticmethod
    def log(
        name: str, severity: int, context: Callable[[], RequestIds | None], open_logger: Callable[[], object]
    ) -> Callable[..., bool]: ...

_ActiveSpan: TypeAlias = Callable[..., bytes | None]
_SpanReader: TypeAlias = _ActiveSpan | tuple[_ActiveSpan, Callable[[], object]]
_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]

@final
class RequestIds:
    @property
    def trace_id(self) -> str: ...
    @property
    def span_id(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def client_request_id(self) -> str | None: ...
    def keep(self) -> None: ...
    def outgoing_headers(self, *, span_id: str | None = None) -> dict[str, str]: ...

@final
class RequestObserver:
    @property
    def started(self) -> bool: ...
    def received(self, message: _Message) -> None: ...
    def finish(self) -> None: ...
    def fail(self, ending: str, error_type: str) -> None: ...

@final
class EngineReader:
    def __new__(
        cls,
        *,
        take: Callable[[str, RequestIds], tuple[object, ...] | None] | None,
        failed: Callable[[Exception], None],
        id_characters: int,
    ) -> EngineReader: ...

@final
class RequestFactory:
    def __new__(
        cls,
        service: Service,
        observed_receive: Callable[[_Receive, RequestObserver], Awaitable[_Message]],
        *,
        span_reader: Callable[[], _SpanReader | None] | None,
        correlation_reader: Callable[[], Callable[[], str | None] | None] | None,
        engine_reader: EngineReader | None,
        forward_trace: bool,
        forward_request_id: bool,
        response_header: str | None,
        chunks: str,
        chunk_timeline_limit: int,
        capture_head_bytes: int,
        capture_tail_bytes: int,
        texts: TextCapture,
        opt_out_header: str | None,
        sampler: Sampler,
        special_paths: Sequence[str],
    ) -> RequestFactory: ...
    @property
    def begin(self) -> Callable[..., tuple[RequestObserver, RequestIds, _Receive, _Send] | None]: ...
    def reseed(self) -> None: ...

@final
class ModelRequest:
    @property
    def ids(self) -> RequestIds: ...
    def sending(self, response: object, flags: int) -> None: ...
    def cancelled(self) -> None: ...
    def usage(self, *, input_tokens: int | None = None, output_tokens: int | None = None) -> None: ...
    def finish(self) -> None: ...
    def fail(self, error_type: str) -> None: ...

@final
class ModelLog:
    def __new__(
        cls,
        service: Service,
        *,
        classes: tuple[object, object, object],
        model: tuple[str, str, str],
        path: str,
        datatypes: dict[str, tuple[str, int]] | None,
        traces: bool,
        read_parameters: Callable[[str], tuple[str | None, str | None, str | None]] | None,
        failed: Callable[[Exception], None],
        raised: Callable[[list[ModelRequest], BaseException], None],
        returned: Callable[[list[ModelRequest], Any], Any],
        ended: Callable[[], None] | None,
        context: ContextVar[RequestIds | None],
        decoupled: bool,
        sampler: Sampler,
        chunks: str,
        chunk_timeline_limit: int,
    ) -> ModelLog: ...
    def begin(self, requests: Sequence[object]) -> list[ModelRequest]: ...
    def end(self, begun: list[ModelRequest], responses: Sequence[object] | None) -> None: ...
    def serve(self, execute: Callable[[Any, Any], Any], model: object, requests: Sequence[object]) -> Any: ...
    def find(self, request: object) -> ModelRequest | None: ...

@final
class TextCapture:
    def __new__(
        cls, *, input_mode: str, input_bytes: int, output_mode: str, output_bytes: int, hash_key: bytes | None
    ) -> TextCapture: ...

@final
class Sampler:
    def __new__(
        cls,
        kind: str,
        *,
        ratio: float = 1.0,
        precision: int = 4,
        routes: Sequence[tuple[str, float]] = ...,
        skip_paths: Sequence[str] = ...,
        trusted_callers: Sequence[str] = ...,
        slow_s: float = 0.0,
        budget_records_s: int = 0,
    ) -> Sampler: ...
    def head(
        self, trace_id: str, path: str = "/", parent: tuple[bool, int | None, int | None] | None = None
    ) -> tuple[bool, float | None, str]: ...
    def trusts(self, client_address: str) -> bool: ...

@final
class Service:
    def __new__(
        cls,
        *,
        queue_directory: Path,
        queue_bytes: int,
        in_flight_slots: int,
        max_record_bytes: int,
        overflow_info_ratio: float,
        listener: bool,
        sink: str,
        fallback: str | None,
        fallback_delay_s: float,
        additional_sinks: Sequence[str],
        sink_buffer_bytes: int,
        directory: Path,
        segment_prefix: str,
        flush_interval_s: float,
        flush_records: int,
        flush_bytes: int,
        rotate_bytes: int,
        rotate_interval_s: float,
        writeback_bytes: int,
        retention_s: float,
        quota_bytes: int,
        retention_waits_for: Sequence[str],
        compress_level: int | None,
        compress_keep_segments: int,
        redaction: Redaction,
        hash_key: bytes | None = None,
        durable: bool = False,
        chain: str | None = None,
        chain_key: bytes | None = None,
        writer: Callable[[bytes | None], object] | None = None,
    ) -> Service: ...
    def event(
        self,
        name: str,
        fields: Sequence[str],
        severity: int,
        context: Callable[[], RequestIds | None] | None = None,
    ) -> Callable[..., bool]: ...
    def set_only_listens(self) -> None: ...
    def set_producer_name(self, name: str) -> None: ...
    def dead_producers(self) -> list[str]: ...
    def set_budget(self, records_s: int) -> None: ...
    def make_current(self, least_severity: int, active_span: _SpanReader | None = None) -> None: ...
    def flush(self, deadline_s: float) -> bool: ...
    def close(self, deadline_s: float) -> bool: ...
    def after_fork_in_child(self) -> None: ...
    def books(self) -> dict[str, Any] | None: ...
    def queues(self) -> list[dict[str, Any]]: ...
    def totals(self) -> dict[str, Any]: ...
    def requests(self) -> dict[str, Any]: ...
    def listener_stats(self) -> dict[str, Any]: ...
    def sinks(self) -> list[dict[str, Any]]: ...

@final
class HeldQueues:
    def __new__(cls, queue_directory: Path) -> HeldQueues: ...
    def queues(self) -> list[dict[str, Any]]: ...
    def unreadable(self) -> list[tuple[str, str]]: ...

@final
class AuditQueue:
    def __new__(cls, service: Service, commit_records: int) -> AuditQueue: ...
    def event(
        self,
        name: str,
        fields: Sequence[str],
        severity: int,
        context: Callable[[], RequestIds | None] | None = None,
    ) -> Callable[..., int]: ...
    @property
    def reasons(self) -> list[str]: ...
    def count_refused(self, reason: int, severity: int) -> None: ...
    @property
    def accepted(self) -> int: ...
    @property
    def committed(self) -> int: ...
    def request_commit(self) -> None: ...
    def wait(self, sequence: int, deadline_s: float) -> bool: ...
    def watch(self) -> CommitWatch: ...

@final
class CommitWatch:
    def fileno(self) -> int: ...
    def arm(self, seen: int) -> None: ...
    def disarm(self) -> None: ...
    def take(self) -> int: ...
    def close(self) -> None: ...

@final
class LineChain:
    def __new__(cls, algorithm: str, key: bytes | None, last: bytes | None) -> LineChain: ...
    def next(self, line: bytes) -> bytes: ...
    def keep(self) -> None: ...
    def check(self, line: bytes) -> bool: ...

@final
class RuntimeControl:
    def __new__(cls, queue_directory: Path) -> RuntimeControl: ...
    def overrides(self) -> list[dict[str, Any]]: ...
    def change(self, what: str, value: str | float, for_s: float, who: str) -> None: ...
    def reset(self, who: str) -> int: ...

def verify(
    directories: Sequence[str | Path],
    queue_directories: Sequence[str | Path],
    prefixes: Sequence[str],
    chain_key: bytes | None,
    databases: Sequence[tuple[Path, str, Callable[[], Iterable[bytes]]]] = ...,
) -> str: ...
