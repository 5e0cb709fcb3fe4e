"""The records of vLLM's engine: one request that ended, several of them as one, and the two events.

An HTTP request is one or more engine requests: one per prompt, and one per choice (``n``) of a prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from inference_logging._native import RequestIds
from inference_logging.record.application import get_logger
from inference_logging.record.context import REQUEST
from inference_logging.record.logger import Logger

ID_CHARACTERS = 256
"""A client chooses most of an id: longer ones are cut."""
MAX_FINISH_REASONS = 16
"""As many as are read from a response."""
REQUEST_FIELDS = (
    "engine.request_id",
    "engine.index",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "engine.finish_reasons",
    "engine.queued_s",
    "engine.prefill_s",
    "engine.decode_s",
    "engine.e2e_s",
    "engine.preemptions",
)


class Finished(NamedTuple):
    """One engine request that ended; seconds are None if the engine had not come that far, or doesn't report them."""

    request_id: str
    engine_index: int | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    finish_reason: str | None
    """None if it runs still."""
    queued_s: float | None
    prefill_s: float | None
    decode_s: float | None
    e2e_s: float | None
    preemptions: int
    is_first: bool = True
    """It is the first choice of its prompt, for which the prompt counts."""


class EngineRequests:
    """All engine requests of one HTTP request: a prompt counts once, output tokens and preemptions are sums.

    Seconds are those of the longest. ``asked`` is not None if an engine gave one up: True if it was asked to, False if
    it did so by itself, as when it stops. ``running`` has the states of those that run, by vLLM's internal id.
    """

    __slots__ = (
        "asked",
        "cached_tokens",
        "decode_s",
        "e2e_s",
        "finish_reasons",
        "input_tokens",
        "output_tokens",
        "preemptions",
        "prefill_s",
        "queued_s",
        "request_id",
        "requests",
        "running",
    )

    def __init__(self) -> None:
        self.request_id: str | None = None
        self.asked: bool | None = None
        self.requests = self.input_tokens = self.output_tokens = self.cached_tokens = self.preemptions = 0
        self.finish_reasons: list[str] = []
        self.queued_s: float | None = None
        self.prefill_s: float | None = None
        self.decode_s: float | None = None
        self.e2e_s: float | None = None
        self.running: dict[str, Any] = {}

    def add(self, entry: Finished) -> None:
        """Count ``entry`` in."""
        (name, _, tokens_in, tokens_out, cached, reason, queued, prefill, decode, e2e, preemptions, is_first) = entry
        self.request_id = self.request_id or name
        self.requests += 1
        if is_first:
            self.input_tokens += tokens_in
            self.cached_tokens += cached
        self.output_tokens += tokens_out
        self.preemptions += preemptions
        if reason is not None and len(self.finish_reasons) < MAX_FINISH_REASONS:
            self.finish_reasons.append(reason)
        self.queued_s = _longer(self.queued_s, queued)
        self.prefill_s = _longer(self.prefill_s, prefill)
        self.decode_s = _longer(self.decode_s, decode)
        self.e2e_s = _longer(self.e2e_s, e2e)

    def values(self) -> tuple[object, ...]:
        """Return what the native reader of the engine's facts takes."""
        return (
            self.request_id,
            self.asked,
            self.input_tokens,
            self.output_tokens,
            self.cached_tokens,
            self.requests,
            self.finish_reasons or None,
            self.queued_s,
            self.prefill_s,
            self.decode_s,
            self.e2e_s,
            self.preemptions,
        )


def _longer(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def seconds(value: float) -> float | None:
    """Return a duration in microseconds, or None for a negative one, whose end never came."""
    return round(value, 6) if value >= 0.0 else None


def request_event(logger: Logger) -> Callable[[Finished, RequestIds | None], None]:
    """Register ``engine.request``; return the function that records one, with the ids of its HTTP request."""
    emit = logger.event("engine.request", REQUEST_FIELDS, with_request=True)

    def record(entry: Finished, ids: RequestIds | None) -> None:
        # vLLM's task of outputs runs in a copy of the first request's context, whose ids are never the right ones.
        token = REQUEST.set(ids)
        try:
            emit(entry.request_id[:ID_CHARACTERS], *entry[1:5], [entry.finish_reason], *entry[6:-1])
        finally:
            REQUEST.reset(token)

    return record


def report_lacking(what: str) -> None:
    """Report on stderr and in the log what is missing; the caller does so once."""
    sys.stderr.write(f"inference_logging: {what}\n")
    get_logger("inference_logging.vllm").warning(what)


def off(is_on: bool, part: str, error: Exception) -> bool:
    """Return False: a part failed and is switched off, which is reported once."""
    if is_on:
        report_lacking(f"there are no more {part}: {type(error).__name__}: {error}")
    return False
