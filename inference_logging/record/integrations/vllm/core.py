"""Engine records for a server whose HTTP is in Rust: made in the engine's own process, beside its scheduler.

No other process of that server runs Python for requests. The scheduler is followed, not changed: after each of its
steps, and after each abort, its result is read. Ids are the engine's, which has no HTTP request; ``e2e_s`` begins when
the engine queues a request. A stop string, which Rust looks for, ends a request as ``abort`` here.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from inference_logging.record.config import Config
from inference_logging.record.integrations.vllm.needs import SCHEDULED, whole
from inference_logging.record.integrations.vllm.records import Finished, off, report_lacking, request_event, seconds
from inference_logging.record.integrations.vllm.stats import Statistics
from inference_logging.record.logger import Logger

_WHAT = "engine records"


def follow_schedulers() -> None:
    """Follow each scheduler that this process makes from now on; idempotent. Nothing is opened before there is one."""
    try:
        from vllm.v1.core.sched.scheduler import Scheduler
    except ImportError as error:
        # Not in the log too: this process may be one that opens nothing.
        sys.stderr.write(f"inference_logging: there are no {_WHAT}: {error}\n")
        return
    construct = Scheduler.__init__
    if getattr(construct, "follows", False):
        return

    @functools.wraps(construct)
    def followed(self: Any, *arguments: Any, **keywords: Any) -> None:
        construct(self, *arguments, **keywords)
        if whole(_WHAT, SCHEDULED):
            Follower(self)

    followed.follows = True  # type: ignore[attr-defined] # the mark that it is done
    Scheduler.__init__ = followed


class Step:
    """The work of one step of the scheduler."""

    __slots__ = ("finished", "generation_tokens", "preemptions", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = self.preemptions = self.finished = 0


class Progress:
    """The progress of one engine request; times are monotonic, and zero for steps not reached."""

    __slots__ = ("cached_tokens", "first", "input_tokens", "preemptions", "queued", "request", "scheduled")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.queued = self.scheduled = self.first = 0.0
        self.input_tokens = self.cached_tokens = self.preemptions = 0

    def see(self, events: Iterable[Any]) -> int:
        """Take in the scheduler's events of it; return how often it was preempted in them."""
        preemptions = 0
        for event in events:
            kind = event.type.name
            if kind == "QUEUED":
                self.queued = event.timestamp
            elif kind == "SCHEDULED":
                self.scheduled = self.scheduled or event.timestamp
            elif kind == "PREEMPTED":
                preemptions += 1
        self.preemptions += preemptions
        return preemptions

    def begin(self, prefill: Any, at: float) -> None:
        """Take in its first output."""
        self.first = at
        self.input_tokens, self.cached_tokens = prefill.num_prompt_tokens, prefill.num_cached_tokens

    def finished(self, name: str, index: int, output_tokens: int, reason: str, at: float) -> Finished:
        """Return the record of this request, which ended ``at``."""
        return Finished(
            name,
            index,
            self.input_tokens,
            output_tokens,
            self.cached_tokens,
            reason,
            _between(self.queued, self.scheduled),
            _between(self.scheduled, self.first),
            _between(self.first, at),
            _between(self.queued, at),
            self.preemptions,
        )


class Follower:
    """Records the work of one scheduler; an error of this package ends the records, not the engine.

    It keeps only the requests that the scheduler has under way. Raises ``ConfigError`` and ``OpenError`` at start.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._logger = Logger.shared(Config())
        self._emit = request_event(self._logger)
        self._index = scheduler.vllm_config.parallel_config.data_parallel_index
        self._progress: dict[str, Progress] = {}
        self._on = True
        # The timer of the statistics runs in a thread of its own: there is no event loop here.
        self._lock = threading.Lock()
        self._statistics: Statistics | None = None
        if not scheduler.log_stats:
            report_lacking(
                "with --disable-log-stats engine.request records have no times, and there are no engine.stats records"
            )
        elif self._logger.config.engine_stats_interval_s:
            self._statistics = Statistics(
                self._logger,
                self._later,
                self._failed,
                speculates=scheduler.vllm_config.speculative_config is not None,
            )
        scheduler.update_from_output = self._after(scheduler.update_from_output, self._updated)
        scheduler.finish_requests = self._after(scheduler.finish_requests, self._ended)

    def _after(self, method: Callable[..., Any], see: Callable[[Any], None]) -> Callable[..., Any]:
        def followed(*arguments: Any, **keywords: Any) -> Any:
            returned = method(*arguments, **keywords)
            if self._on:
                try:
                    with self._lock:
                        see(returned)
                except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM's engine
                    self._failed(error)
            return returned

        return followed

    def _updated(self, batches: dict[int, Any]) -> None:
        # One batch per front end; one of them has the scheduler's statistics.
        for batch in batches.values():
            step = Step()
            for output in batch.outputs:
                step.generation_tokens += len(output.new_token_ids)
                # Most outputs are just one more token.
                if output.events or output.prefill_stats or output.finish_reason is not None:
                    self._look(output, batch.timestamp, step)
            if self._statistics is not None:
                interval = self._statistics.interval(self._index)
                interval.count(step.prompt_tokens, step.generation_tokens, step.preemptions, step.finished)
                if batch.scheduler_stats is not None:
                    interval.see(batch.scheduler_stats)

    def _look(self, output: Any, at: float, step: Step) -> None:
        name = output.request_id
        progress = self._progress.get(name)
        if progress is None:
            progress = self._progress[name] = Progress(self._scheduler.requests.get(name))
        step.preemptions += progress.see(output.events or ())
        if output.prefill_stats is not None:
            progress.begin(output.prefill_stats, at)
            step.prompt_tokens += progress.input_tokens
        if output.finish_reason is not None:
            step.finished += 1
            del self._progress[name]
            # A request that ends with its first output has left the scheduler by now: it had only that output.
            request = progress.request
            tokens = len(output.new_token_ids) if request is None else request.num_output_tokens
            self._emit(progress.finished(name, self._index, tokens, str(output.finish_reason), at), None)

    def _ended(self, requests: Iterable[Any]) -> None:
        # Those that end by an error have an output, too.
        now = time.monotonic()
        for request in requests:
            reason = str(request.get_finished_reason())
            if reason != "abort":
                continue
            progress = self._progress.pop(request.request_id, None) or Progress(request)
            progress.see(request.events)
            progress.input_tokens = request.num_prompt_tokens
            self._emit(progress.finished(request.request_id, self._index, request.num_output_tokens, reason, now), None)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        def locked() -> None:
            with self._lock:
                call()

        timer = threading.Timer(delay_s, locked)
        timer.daemon = True
        timer.start()

    def _failed(self, error: Exception) -> None:
        self._on = off(self._on, _WHAT, error)


def _between(begin: float, end: float) -> float | None:
    return seconds(end - begin) if begin and end else None
