"""The pure-ASGI middleware: one terminal record per request, a timeline per stream, nothing changed on the way.

The object holds configuration and the open logger; a native observer holds the state of one request. Foreign scopes and
every message pass through untouched. ``send`` is a C function that reads the message and returns the server's own
awaitable; only ``receive`` needs a coroutine, since its result is what has to be read.
"""

from __future__ import annotations

import os
import sys
import traceback
import weakref
from collections.abc import Awaitable, Callable
from contextvars import Token
from functools import partial
from typing import TYPE_CHECKING, Any

from inference_logging._native import Metrics, RequestFactory, RequestIds, RequestObserver, finish, received
from inference_logging.errors import AuditError, InferenceLoggingError, OpenError
from inference_logging.record import metrics
from inference_logging.record.asgi import websocket
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send, serve_lifespan
from inference_logging.record.asgi.probes import (
    OFF,
    Unopened,
    liveness,
    may_serve,
    readiness,
    refuse,
    respond,
    respond_with_metrics,
    wrap,
)
from inference_logging.record.context import HAS_READERS, MIDDLEWARES, REQUEST
from inference_logging.record.health import Health, Watch
from inference_logging.record.logger import Logger, _configured
from inference_logging.record.otel import correlation_reader, span_reader
from inference_logging.record.settings import settings
from inference_logging.record.started import record_start

if TYPE_CHECKING:
    from types import FrameType

    from inference_logging.record.config import Config
    from inference_logging.record.integrations.vllm.server import Server as VllmServer

Begun = tuple[RequestObserver, Receive, Send]
NotRecorded = tuple[None, Receive, Send]
Begin = Callable[..., Any]

_open_middlewares: weakref.WeakSet[InferenceLoggingMiddleware] = weakref.WeakSet()

_LONGEST_CHAIN = 16
"""Most exceptions, each raised in place of the one before, that are looked at."""

_STREAMS = frozenset({"stream_response", "_stream_response"})
_LIBRARIES = frozenset({"starlette", "sse_starlette"})
"""Functions that send the parts of a stream, and their libraries."""

_NO_FAILURES = frozenset({"cancelled", "disconnected"})
_DISCONNECT_ERRORS = frozenset({"ClientDisconnect", "ClientDisconnected"})


class InferenceLoggingMiddleware:
    """Record every request of the application ``app``: ``app.add_middleware(InferenceLoggingMiddleware)``.

    Without ``config`` everything comes from the environment and the configuration file. The logger opens with the
    server's lifespan (or at the first request), and drains at its end (or at interpreter exit).

    The startup fails with ``ConfigError`` for a wrong value, ``MissingExtraError`` for ``metrics_registry`` without
    prometheus_client, and ``OpenError`` if the queue or the sink is not available. It does not fail if a queue has no
    room, or a place that nobody configured can't be opened: both are tried again. On a server without lifespan an error
    is reported once, on stderr, and requests are served without a record: none ever fails because of logging.
    """

    def __init__(self, app: ASGIApp, config: Config | None = None) -> None:
        self.app = app
        self._routes: dict[str, Callable[[Scope, Send], Awaitable[object]]] = {}
        self._wrapped_path: str | None = None
        self._refused: InferenceLoggingError | None = None
        try:
            self.config = config if config is not None else _configured()
            self._read_paths()
        except InferenceLoggingError as error:
            # Frameworks make middlewares at the first scope: an error would look like an application without lifespan,
            # whose every request then fails.
            self._refused = error
        # A tuple: whatever a server gives as path can be compared, not all of it can be hashed.
        self._special_paths = (*self._routes, *filter(None, [self._wrapped_path]))
        self._is_off = self._refused is None and self.config.enabled == "off"
        self._logger: Logger | None = None
        self._watch: Watch | None = None
        self._metrics: Metrics | None = None
        self._take_back: Callable[[], None] | None = None
        self._vllm: VllmServer | None = None
        self._begin: Begin = _not_open
        self._reseed: Callable[[], None] | None = None
        self._factory: RequestFactory | None = None
        self._unavailable = False
        self._unopened: Unopened | None = None

    def _read_paths(self) -> None:
        config = self.config
        if config.metrics_registry == "default":
            metrics.require()
        for path, answer in (
            (config.health_path, self._answer_readiness),
            (config.liveness_path, self._answer_liveness),
            (config.metrics_path, self._answer_metrics),
        ):
            if path is not None:
                self._routes[path] = answer
        if config.enabled == "on":
            self._wrapped_path = config.wrap_health_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        """Serve one scope; return what the application returns, which servers check (it should be None)."""
        # Attributes that are called are read first: to look for a method of their name costs ten times as much.
        begin = self._begin
        begun: Begun | None = begin(scope, receive, send)
        if begun is None:
            begun, returned = await self._serve_other(scope, receive, send)
            if begun is None:
                return returned
        observer, receive, send = begun
        app = self.app
        token = REQUEST.set(observer.ids) if HAS_READERS else None
        try:
            returned = await app(scope, receive, send)
        except BaseException as error:
            answered = isinstance(error, AuditError) and await _answered_unavailable(observer, error, scope, send)
            if observer.complete and (_came_from(observer.server_send, error) or _broke_the_stream(error)):
                observer.take_back_end()
            observer.fail(_ending(error), type(error).__qualname__, self._texts(error))
            if not answered:
                raise
        else:
            finish(observer)
            return returned
        finally:
            if HAS_READERS:
                _leave(token)

    def _texts(self, error: BaseException) -> Callable[[], tuple[str, str, str]] | None:
        # A client that leaves, or a server that stops, is not a failure of the application.
        if self._logger is None or _ending(error) in _NO_FAILURES:
            return None
        return partial(self._logger.tracebacks.texts, error)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> tuple[Begun | None, Any]:
        # Everything except a request to record at once: other scopes, this package's routes, requests before anything
        # is open. Returns what the application returned, or how a request has begun after all.
        kind = scope.get("type")
        if kind == "lifespan":
            return None, await serve_lifespan(
                self.app, scope, receive, send, lambda: self._open_at_start(scope), self._close
            )
        if kind not in {"http", "websocket"}:
            return None, await self.app(scope, receive, send)
        if self._begin is _not_open:
            self._open_late(scope)
        if kind == "websocket":
            factory, logger = self._factory, self._logger
            if factory is None or logger is None:
                return None, await self.app(scope, receive, send)
            served = websocket.serve(self.app, scope, receive, send, factory, logger.service, _ending, self._texts)
            return None, await served
        path = self._special_path(scope)
        if path is not None:
            if path != self._wrapped_path:
                await self._routes[path](scope, send)
                return None, None
            send = wrap(send, self._look, changes_status=self.config.wrap_health == "status")
        begun: Begun | NotRecorded | None = self._begin(scope, receive, send, True)
        if begun is None:
            return None, await self.app(scope, receive, send)
        if begun[0] is None:
            # While recording is compared with not recording (`inference-logging ab`), this one is only timed.
            return None, await self.app(scope, begun[1], begun[2])
        return begun, None

    def _special_path(self, scope: Scope) -> Any:
        """Return a special path, as it came or without its prefix; None: the path is an ordinary one."""
        for path in (scope.get("path"), _behind_prefix(scope)):
            if path in self._special_paths:
                return path
        return None

    def _open(self, scope: Scope) -> None:
        if self._refused is not None:
            raise self._refused
        if self._logger is None:
            self._logger = Logger.shared(self.config)
            _open_middlewares.add(self)
        if self._is_off:
            self._begin = _off
            return
        if self._watch is None:
            self._watch = Watch(self.config, self._logger.service, audit=self._logger.audit_service)
            if self.config.metrics_registry == "default":
                self._take_back = metrics.offer(metrics.InferenceLoggingCollector(self._logger, self._watch))
            self._metrics = metrics.metrics_of(self._logger, self._watch)
            if "vllm" in sys.modules:
                from inference_logging.record.integrations.vllm import server as vllm  # no other server needs it

                self._vllm = vllm.attach(scope.get("app"), self.config)
        server = self._vllm
        try:
            factory = RequestFactory(
                self._logger.service,
                settings(self.config),
                _observed_receive,
                span_reader=span_reader,
                correlation_reader=correlation_reader,
                engine_reader=server.reader if server is not None else None,
                server_traces=server is not None and server.traces,
            )
        except OSError as error:
            raise OpenError(str(error)) from error
        record_start(self._logger, server.reported if server is not None else None)
        self._reseed = factory.reseed
        self._begin, self._factory = factory.begin, factory

    def _open_at_start(self, scope: Scope) -> None:
        try:
            self._open(scope)
        except OpenError as error:
            if not may_serve(self.config, error):
                raise
            self._unopened = Unopened(error)

    def _open_again(self, scope: Scope, unopened: Unopened) -> None:
        if unopened.is_due():
            try:
                self._open(scope)
            except OpenError as error:
                unopened.failed(error)
            else:
                self._unopened = None
                unopened.opened()
                return
        if self._special_path(scope) is None:
            unopened.requests += 1

    def _open_late(self, scope: Scope) -> None:
        # There was no lifespan before the first request, so an error cannot stop the start any more: serve, and report
        # it once.
        if self._unopened is not None:
            self._open_again(scope, self._unopened)
        if self._unopened is not None or self._unavailable or self._begin is not _not_open:
            return
        try:
            self._open_at_start(scope)
        except Exception as error:  # noqa: BLE001 - whatever it is: requests are served
            self._unavailable = True
            why = str(error) if isinstance(error, InferenceLoggingError) else traceback.format_exc()
            sys.stderr.write(f"inference_logging: requests are NOT recorded: {why.rstrip()}\n")

    def _close(self) -> None:
        self._begin, self._factory, self._reseed = _not_open, None, None
        self._watch = self._metrics = self._unopened = None
        _open_middlewares.discard(self)
        if self._take_back is not None:
            self._take_back()
            self._take_back = None
        if self._vllm is not None:
            self._vllm.detach()
            self._vllm = None
        if self._logger is not None:
            self._logger.release()
            self._logger = None

    def _look(self) -> Health | Unopened | None:
        return self._watch.recent() if self._watch is not None else self._unopened

    async def _answer_readiness(self, scope: Scope, send: Send) -> None:
        await respond(scope, send, OFF if self._is_off else readiness(self._look()))

    async def _answer_liveness(self, scope: Scope, send: Send) -> None:
        await respond(scope, send, OFF if self._is_off else liveness(self._look()))

    async def _answer_metrics(self, scope: Scope, send: Send) -> None:
        await respond_with_metrics(scope, send, self._metrics or self._unopened)


def reopen_all() -> None:
    """Let every open middleware release its logger and request a new one at its next request."""
    for middleware in list(_open_middlewares):
        middleware._close()


MIDDLEWARES.add(InferenceLoggingMiddleware.__call__.__code__)


def _leave(token: Token[RequestIds | None] | None) -> None:
    """Leave the request's context as it was; ``token``: as the request was set, None if it was not at its beginning."""
    if token is None:
        REQUEST.set(None)
        return
    try:  # noqa: SIM105 - contextlib.suppress would cost each request more than the reset itself
        REQUEST.reset(token)
    except ValueError:
        pass  # thrown away by the garbage collector: that runs in no request's context


def _behind_prefix(scope: Scope) -> Any:
    """Return the path without the prefix under which a proxy or a mount serves the application (``root_path``)."""
    path = scope.get("path")
    try:
        root = scope.get("root_path")
    except Exception:  # noqa: BLE001 - a key of the server's compares with it, and raises
        return path
    if isinstance(path, str) and isinstance(root, str) and path.startswith(f"{root}/"):
        return path[len(root) :]
    return path


def _not_open(*_arguments: object) -> Begun | None:
    """Replace ``begin`` while nothing is open: no request is recorded."""
    return None


def _off(*_arguments: object) -> Begun | None:
    """Replace ``begin`` if ``enabled`` is off: no request is recorded."""
    return None


async def _answered_unavailable(observer: RequestObserver, error: AuditError, scope: Scope, send: Send) -> bool:
    """Answer 503 for a record that the audit lane did not take, unless the answer has begun; return whether it did."""
    if observer.started or error.reason == "off":
        return False
    try:
        await refuse(scope, send, f"an audit record was not committed: {error.reason}")
    except Exception:  # noqa: BLE001 - the client is gone, or the server's own failure: the application's error says more
        return False
    return True


async def _observed_receive(receive: Receive, observer: RequestObserver) -> Message:
    message = await receive()
    received(observer, message)
    return message


def _came_from(send: Any, error: BaseException) -> bool:
    """Return whether the server's ``send`` raised: then the last part of the answer was not taken."""
    send = getattr(send, "func", send)  # of a partial
    code = getattr(getattr(send, "__func__", send), "__code__", None)
    return _came_through(error, lambda frame: frame.f_code is code)


def _broke_the_stream(error: BaseException) -> bool:
    """Return whether a stream raised: Starlette's BaseHTTPMiddleware ends the answer before it raises the error."""
    return isinstance(error, Exception) and _came_through(error, _is_of_a_stream)


def _is_of_a_stream(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_name in _STREAMS and module.partition(".")[0] in _LIBRARIES


def _came_through(error: BaseException, is_it: Callable[[FrameType], bool]) -> bool:
    raised: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if raised is None:
            break
        if any(is_it(frame) for frame, _ in traceback.walk_tb(raised.__traceback__)):
            return True
        # An application may wrap it in an exception of its own.
        raised = raised.__cause__ or raised.__context__
    return False


def _ending(error: BaseException) -> str:
    name = type(error).__qualname__
    # By name also: before Python 3.11 asyncio's is another class.
    if isinstance(error, TimeoutError) or name == "TimeoutError":
        return "timed_out"
    if name in _DISCONNECT_ERRORS:
        return "disconnected"
    # CancelledError, GeneratorExit, KeyboardInterrupt, trio.Cancelled: not the application's own failure.
    return "raised" if isinstance(error, Exception) else "cancelled"


def _after_fork_in_child() -> None:
    # A child that continues with a middleware must not repeat its parent's ids.
    for middleware in _open_middlewares:
        if middleware._reseed is not None:
            middleware._reseed()


os.register_at_fork(after_in_child=_after_fork_in_child)
