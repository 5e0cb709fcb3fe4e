"""The engine's state and work of an interval, as `engine.stats` records: one per engine, and none from an idle server.

Gauges (running, waiting, KV cache) are the last ones seen, everything else counts from the interval's begin. The timer
is armed by activity only, so the last record of a busy time shows the state at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from inference_logging.record.logger import Logger

STATS_FIELDS = (
    "engine.index",
    "engine.interval_s",
    "engine.running",
    "engine.waiting",
    "engine.kv_cache_usage",
    "engine.prefix_cache_queries",
    "engine.prefix_cache_hits",
    "engine.prompt_tokens",
    "engine.prompt_tokens_per_s",
    "engine.generation_tokens",
    "engine.generation_tokens_per_s",
    "engine.preemptions",
    "engine.finished",
)
SPECULATION_FIELDS = (
    "engine.spec_decode_drafts",
    "engine.spec_decode_draft_tokens",
    "engine.spec_decode_accepted_tokens",
    "engine.spec_decode_acceptance_rate",
)

Later = Callable[[float, Callable[[], None]], object]
"""Call a function once, after so many seconds: the event loop's timer, or a thread's."""


class Interval:
    """The work of one engine since ``since``."""

    __slots__ = (
        "accepted_tokens",
        "draft_tokens",
        "drafts",
        "finished",
        "generation_tokens",
        "hits",
        "kv_cache_usage",
        "preemptions",
        "prompt_tokens",
        "queries",
        "running",
        "since",
        "waiting",
    )

    def __init__(self, since: float) -> None:
        self.since = since
        self.running: int | None = None
        self.waiting: int | None = None
        self.kv_cache_usage: float | None = None
        self.queries = self.hits = self.prompt_tokens = self.generation_tokens = self.preemptions = self.finished = 0
        self.drafts = self.draft_tokens = self.accepted_tokens = 0

    def see(self, stats: Any) -> None:
        """Take in vLLM's SchedulerStats."""
        self.running = stats.num_running_reqs
        self.waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
        self.kv_cache_usage = stats.kv_cache_usage
        cache = stats.prefix_cache_stats
        self.queries += cache.queries
        self.hits += cache.hits
        if (speculation := stats.spec_decoding_stats) is not None:
            self.drafts += speculation.num_drafts
            self.draft_tokens += speculation.num_draft_tokens
            self.accepted_tokens += speculation.num_accepted_tokens

    def count(self, prompt_tokens: int, generation_tokens: int, preemptions: int, finished: int) -> None:
        """Take in what one batch of outputs did."""
        self.prompt_tokens += prompt_tokens
        self.generation_tokens += generation_tokens
        self.preemptions += preemptions
        self.finished += finished

    def values(self, index: int, now: float) -> tuple[Any, ...]:
        """Return the values of STATS_FIELDS; None for values that the scheduler has not reported."""
        duration = max(now - self.since, 1e-6)
        is_known = self.running is not None
        return (
            index,
            round(duration, 6),
            self.running,
            self.waiting,
            None if self.kv_cache_usage is None else round(self.kv_cache_usage, 6),
            self.queries if is_known else None,
            self.hits if is_known else None,
            self.prompt_tokens,
            round(self.prompt_tokens / duration, 3),
            self.generation_tokens,
            round(self.generation_tokens / duration, 3),
            self.preemptions,
            self.finished,
        )

    def speculation(self) -> tuple[Any, ...]:
        """Return the values of SPECULATION_FIELDS; no rate if nothing was drafted."""
        rate = round(self.accepted_tokens / self.draft_tokens, 4) if self.draft_tokens else None
        return self.drafts, self.draft_tokens, self.accepted_tokens, rate


class Statistics:
    """The intervals under way, by engine; ``failed`` gets an error that occurs while one is recorded."""

    def __init__(
        self,
        logger: Logger,
        later: Later,
        failed: Callable[[Exception], object],
        *,
        speculates: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = logger.event("engine.stats", (*STATS_FIELDS, *(SPECULATION_FIELDS if speculates else ())))
        self._speculates = speculates
        self._interval_s = logger.config.engine_stats_interval_s
        self._later = later
        self._failed = failed
        self._clock = clock
        self._intervals: dict[int, Interval] = {}

    def interval(self, index: int) -> Interval:
        """Return the interval under way of one engine; the first since the last record begins one for all."""
        interval = self._intervals.get(index)
        if interval is None:
            if not self._intervals:
                self._later(self._interval_s, self.record)
            interval = self._intervals[index] = Interval(self._clock())
        return interval

    def record(self) -> None:
        """Record every engine that did something, and wait for the next activity."""
        ended, self._intervals = self._intervals, {}
        try:
            now = self._clock()
            for index, interval in ended.items():
                self._emit(*interval.values(index, now), *(interval.speculation() if self._speculates else ()))
        except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM's loop
            self._failed(error)
