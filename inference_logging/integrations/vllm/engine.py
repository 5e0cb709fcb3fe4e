"""vLLM's statistics of each batch, as records: the part of `engine_records` in the processes that serve.

vLLM makes one ``EngineStatLogger`` per serving process and calls ``record`` on the event loop for every batch of
outputs, so that is cheap and lets no error out: the part at fault switches itself off, and everything else goes on. The
middleware ``attach``es itself and ``take``s the engine requests of each HTTP request; those that it does not take
become ``engine.request`` records of their own. Aborts never reach vLLM's statistics: they are observed where they are
made.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterable
from typing import Any

from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from inference_logging._native import RequestIds
from inference_logging.config import Config
from inference_logging.integrations.vllm.needs import ABORTED, FINISHED, STATISTICS, whole
from inference_logging.integrations.vllm.records import EngineRequests, Finished, off, request_event, seconds
from inference_logging.integrations.vllm.stats import Interval, Statistics
from inference_logging.integrations.vllm.waiting import WAITING_S, Waiting
from inference_logging.logger import Logger


class EngineStatLogger(AggregateStatLoggerBase):  # type: ignore[misc] # vLLM is not there when types are checked
    """Records of finished and aborted engine requests, and of the engine's state.

    Raises ``ConfigError`` and ``OpenError`` at start, as the middleware does.
    """

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._logger = Logger.shared(Config())
        self._emit = request_event(self._logger)
        self._finished = whole("records of engine requests", FINISHED)
        self._aborts = self._finished and whole("engine records of aborted requests", ABORTED)
        self._statistics: Statistics | None = None
        if self._logger.config.engine_stats_interval_s and whole("engine.stats records", STATISTICS):
            self._statistics = Statistics(
                self._logger,
                _later,
                self._statistics_failed,
                speculates=getattr(vllm_config, "speculative_config", None) is not None,
            )
        # At an abort, the engine that it is for is unknown, unless there is only one.
        self._only_engine = engine_indexes[0] if len(engine_indexes) == 1 else None
        self._waiting: Waiting | None = None
        self._processor: Any = None
        self._sweeping = False

    def log_engine_initialized(self) -> None:
        """Do nothing: vLLM requires it."""

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: object = None,  # noqa: ARG002 - vLLM's signature
        engine_idx: int = 0,
        **_later_versions: object,
    ) -> None:
        """Take in one batch of outputs."""
        if self._finished and iteration_stats is not None:
            try:
                for stats in iteration_stats.finished_requests:
                    self._add(_of_statistics(stats, engine_idx), waits=stats.max_tokens_param is not None)
            except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM's loop
                self._requests_failed(error)
        if self._statistics is not None:
            try:
                _see(self._statistics.interval(engine_idx), scheduler_stats, iteration_stats)
            except Exception as error:  # noqa: BLE001
                self._statistics_failed(error)

    def attach(self, output_processor: Any) -> None:
        """Let requests that end from now on wait to be taken, also aborted ones of ``output_processor``; idempotent."""
        if self._processor is output_processor:
            return
        self.detach()
        self._processor = output_processor
        self._waiting = Waiting(self._emit, getattr(output_processor, "external_req_ids", {}))
        if self._aborts:
            output_processor.abort_requests = self._watched(output_processor.abort_requests)

    def detach(self) -> None:
        """Record the waiting requests by themselves, and let none wait any more; idempotent."""
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        vars(self._processor).pop("abort_requests", None)
        self._processor = None
        waiting.clear()

    def take(self, request_id: str, ids: RequestIds | None) -> EngineRequests | None:
        """Return the engine requests of the HTTP request that vLLM calls ``request_id``; None if none has ended yet.

        A request that ends later (after an abort) is recorded by itself, with ``ids``. Never raises.
        """
        if self._waiting is None or not self._finished:
            return None
        try:
            return self._waiting.take(request_id, ids)
        except Exception as error:  # noqa: BLE001 - a request never fails because of logging
            self._requests_failed(error)
            return None

    def _add(self, entry: Finished, *, waits: bool) -> None:
        # Pooling requests (embeddings, scores) don't wait: vLLM does not pass the id of their HTTP request.
        if self._waiting is None or not waits:
            self._emit(entry, None)
            return
        self._waiting.add(entry)
        if not self._sweeping and self._waiting:
            self._sweeping = True
            _later(WAITING_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        try:
            if self._waiting is not None:
                self._waiting.sweep()
                if self._waiting:
                    self._sweeping = True
                    _later(WAITING_S, self._sweep)
        except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM's loop
            self._requests_failed(error)

    def _watched(self, abort_requests: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``abort_requests`` with recording; vLLM's own error passes on, one of this package stays here."""

        def watched(request_ids: Iterable[str], internal: bool) -> Any:
            request_ids = list(request_ids)
            states = self._states(request_ids, internal=internal)
            aborted = abort_requests(request_ids, internal)
            self._add_aborted(states)
            return aborted

        return watched

    def _states(self, request_ids: list[str], *, internal: bool) -> list[Any]:
        try:
            processor = self._processor
            if not internal:
                request_ids = [name for given in request_ids for name in processor.external_req_ids.get(given, ())]
            # A parent (n > 1) has no state: vLLM comes here again with its children.
            states = processor.request_states
            return [states[name] for name in request_ids if name in states]
        except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
            self._aborts_failed(error)
            return []

    def _add_aborted(self, states: list[Any]) -> None:
        try:
            if self._aborts and self._finished:
                for state in states:
                    self._add(_of_state(state, self._only_engine), waits=True)
        except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
            self._aborts_failed(error)

    def _requests_failed(self, error: Exception) -> None:
        self._finished = off(self._finished, "records of engine requests", error)

    def _aborts_failed(self, error: Exception) -> None:
        self._aborts = off(self._aborts, "engine records of aborted requests", error)

    def _statistics_failed(self, error: Exception) -> None:
        off(self._statistics is not None, "engine.stats records", error)
        self._statistics = None


def _of_statistics(stats: Any, index: int) -> Finished:
    # The engine has no schedule of a request that it never scheduled, nor of any request if it was started without
    # statistics (several API servers, --disable-log-stats): then vLLM counts from zeros.
    queued = seconds(stats.queued_time) or None
    return Finished(
        stats.request_id,
        index,
        stats.num_prompt_tokens,
        stats.num_generation_tokens,
        stats.num_cached_tokens,
        str(stats.finish_reason),
        queued,
        seconds(stats.prefill_time) if queued is not None else None,
        seconds(stats.decode_time),
        seconds(stats.e2e_latency),
        stats.num_preemptions,
    )


def _of_state(state: Any, index: int | None) -> Finished:
    # Timestamps are zero until the first output, which covers all before it, except the schedule as above.
    stats = state.stats
    begun = stats.first_token_ts > 0.0
    scheduled = begun and stats.scheduled_ts > 0.0
    return Finished(
        state.external_req_id,
        index,
        state.prompt_len,
        stats.num_generation_tokens,
        state.num_cached_tokens,
        "abort",
        seconds(stats.scheduled_ts - stats.queued_ts) if scheduled else None,
        seconds(stats.first_token_ts - stats.scheduled_ts) if scheduled else None,
        seconds(stats.last_token_ts - stats.first_token_ts) if begun else None,
        seconds(time.time() - stats.arrival_time),
        stats.num_preemptions,
    )


def _see(interval: Interval, scheduler_stats: Any, iteration_stats: Any) -> None:
    if scheduler_stats is not None:
        interval.see(scheduler_stats)
    if iteration_stats is not None:
        interval.count(
            iteration_stats.prompt_token_stats.total,
            iteration_stats.num_generation_tokens,
            iteration_stats.num_preempted_reqs,
            len(iteration_stats.finished_requests),
        )


def _later(delay_s: float, call: Callable[[], None]) -> object:
    # In a context of its own: the current one would keep its request's ids.
    return asyncio.get_running_loop().call_later(delay_s, call, context=contextvars.Context())
