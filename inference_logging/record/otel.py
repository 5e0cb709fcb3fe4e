"""OpenTelemetry and asgi-correlation-id in the same application, whose ids become those of the records.

Records carry the ids of OpenTelemetry's active span, which other services see. Nothing is imported that the application
has not imported itself. Only the SDK counts: many libraries import just the API, whose spans are the caller's, passed
on. The id that asgi-correlation-id found or made for the client becomes the client's id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

ActiveSpan = Callable[..., bytes | None]

_REMOTE_PARENT = 0x80


def span_reader() -> ActiveSpan | tuple[ActiveSpan, Callable[[], object]] | None:
    """Return the function that reads the active span, or None if the application does not use the SDK.

    It returns trace id (16 bytes), span id (8), flags (1; the highest bit: the span's parent is remote), and the id of
    the span that stands for the request (8): the active one, or its parent if the active one is a part of the request,
    such as ``http receive``; zeros if that is unknown, since a span that is not recorded has neither kind nor parent.
    Called with True, the span's ``tracestate`` follows. None: no span is active.

    If OpenTelemetry's context is in a ``ContextVar``, that one's ``get`` comes with it: while it returns an empty
    dictionary no span is active, which is found out without a call into Python.
    """
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from opentelemetry import context as otel_context
    from opentelemetry.trace import SpanKind, get_current_span

    def request_span(span: Any) -> tuple[int, int]:
        kind = getattr(span, "kind", None)
        if kind is None:
            return 0, 0
        parent = span.parent
        if parent is not None and parent.is_remote:
            return int(span.get_span_context().span_id), _REMOTE_PARENT
        within = span.get_span_context() if parent is None or kind is SpanKind.SERVER else parent
        return int(within.span_id), 0

    def active_span(with_state: bool = False) -> bytes | None:
        span = get_current_span()
        context = span.get_span_context()
        if not context.is_valid:
            return None
        span_id, remote = request_span(span)
        ids: bytes = (
            context.trace_id.to_bytes(16, "big")
            + context.span_id.to_bytes(8, "big")
            + bytes((context.trace_flags & 0x7F | remote,))
            + span_id.to_bytes(8, "big")
        )
        return ids + context.trace_state.to_header().encode() if with_state else ids

    # The API has no other way to it than through two frames.
    variable = getattr(getattr(otel_context, "_RUNTIME_CONTEXT", None), "_current_context", None)
    return (active_span, variable.get) if isinstance(variable, ContextVar) else active_span


def correlation_reader() -> Callable[[], str | None] | None:
    """Return the function that reads the correlation id, or None if the application has not imported the library."""
    if "asgi_correlation_id.context" not in sys.modules:
        return None
    from asgi_correlation_id.context import correlation_id

    return correlation_id.get
