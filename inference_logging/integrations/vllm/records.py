"""The records of vLLM's engine: one request that ended, several of them as one, and the two events.

An HTTP request is one or more engine requests: one per prompt, and one per choice (``n``) of a prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from inference_logging._native import RequestIds
from inference_logging.application import get_logger
from inference_logging.context import REQUEST
from inference_logging.logger import Logger

ID_CHARACTERS = 256
"""A client chooses most of an id: longer ones are cut, and not joined."""
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
    finish_reason: str
    queued_s: float | None
    prefill_s: float | None
    decode_s: float | None
    e2e_s: float | None
    preemptions: int


class EngineRequests(NamedTuple):
    """All engine requests of one HTTP request: a prompt counts once, output tokens and preemptions are sums.

    Seconds are those of the longest. If several choices share a prompt, ``cached_tokens`` are those that the first
    computed one found in the cache.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    finish_reasons: list[str]
    queued_s: float | None
    prefill_s: float | None
    decode_s: float | None
    e2e_s: float | None
    preemptions: int


def merge(entries: Sequence[Finished]) -> EngineRequests:
    """Return ``entries``, at least one, as one."""
    if len(entries) == 1:
        # The usual case, at a seventh of the cost.
        (_, _, tokens_in, tokens_out, cached, reason, queued, prefill, decode, e2e, preemptions), *_ = entries
        return EngineRequests(1, tokens_in, tokens_out, cached, [reason], queued, prefill, decode, e2e, preemptions)
    prompts: dict[str, tuple[int, int]] = {}
    for entry in entries:
        cached = min(entry.cached_tokens, prompts.get(entry.request_id, (0, entry.cached_tokens))[1])
        prompts[entry.request_id] = (entry.input_tokens, cached)
    return EngineRequests(
        requests=len(entries),
        input_tokens=sum(tokens for tokens, _ in prompts.values()),
        output_tokens=sum(entry.output_tokens for entry in entries),
        cached_tokens=sum(cached for _, cached in prompts.values()),
        finish_reasons=[entry.finish_reason for entry in entries],
        queued_s=_longest(entry.queued_s for entry in entries),
        prefill_s=_longest(entry.prefill_s for entry in entries),
        decode_s=_longest(entry.decode_s for entry in entries),
        e2e_s=_longest(entry.e2e_s for entry in entries),
        preemptions=sum(entry.preemptions for entry in entries),
    )


def _longest(durations: Iterable[float | None]) -> float | None:
    return max((duration for duration in durations if duration is not None), default=None)


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
            emit(entry.request_id[:ID_CHARACTERS], *entry[1:5], [entry.finish_reason], *entry[6:])
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
