"""vLLM's statistics of each batch, as records: the part of `engine_records` in the processes that serve.

vLLM makes one ``EngineStatLogger`` per serving process and calls ``record`` on the event loop for every batch of
outputs, so that is cheap and lets no error out: the part at fault switches itself off, and everything else goes on.

The middleware ``attach``es itself to vLLM's output processor. Each engine request begins in the context of its HTTP
request (in its task, or in one that this has started), so the context says whose it is, whatever vLLM calls it; nothing
is read from names, which clients choose. ``take`` returns the numbers of an HTTP request at its end. An engine request
that ends later is an ``engine.request`` record with its ids, and one whose HTTP request is not recorded leaves none.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterable
from typing import Any

from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from inference_logging._native import RequestIds
from inference_logging.record.config import Config
from inference_logging.record.context import REQUEST
from inference_logging.record.integrations.vllm.needs import FINISHED, JOINED, STATISTICS, whole
from inference_logging.record.integrations.vllm.records import EngineRequests, Finished, off, request_event, seconds
from inference_logging.record.integrations.vllm.stats import Interval, Statistics
from inference_logging.record.logger import Logger

_WATCHED = ("add_request", "abort_requests", "_update_stats_from_finished")
_BREAKING = ("pause_generation", "sleep")
"""What may abort all requests of an engine."""


class Origin:
    """Where an engine request comes from: the ids of its HTTP request, None if that is not recorded."""

    __slots__ = ("ids", "is_counted")

    def __init__(self, ids: RequestIds | None) -> None:
        self.ids = ids
        self.is_counted = False
        """The record of its HTTP request has the numbers up to that one's end."""


_UNKNOWN = Origin(None)
"""It began before the middleware was there."""


class EngineStatLogger(AggregateStatLoggerBase):  # type: ignore[misc] # vLLM is not there when types are checked
    """Records of finished and aborted engine requests, and of the engine's state.

    Raises ``ConfigError`` and ``OpenError`` at start, as the middleware does.
    """

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._logger = Logger.shared(Config())
        self._emit = request_event(self._logger)
        self._finished = whole("records of engine requests", FINISHED)
        self._joins = self._finished and whole("engine's numbers in the records of requests", JOINED)
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
        self._client: Any = None
        self._processor: Any = None
        self._breaks = 0
        """Calls under way of what may abort all requests."""
        self._open: dict[RequestIds, EngineRequests] = {}

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
        if self._finished and self._processor is None and iteration_stats is not None:
            try:
                for stats in iteration_stats.finished_requests:
                    self._emit(_of_statistics(stats, engine_idx), None)
            except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM's loop
                self._requests_failed(error)
        if self._statistics is not None:
            try:
                _see(self._statistics.interval(engine_idx), scheduler_stats, iteration_stats)
            except Exception as error:  # noqa: BLE001
                self._statistics_failed(error)

    def attach(self, client: Any) -> None:
        """Let the requests that begin in ``client`` (``AsyncLLM``) from now on be taken; idempotent."""
        if self._client is client or not self._joins:
            return
        self.detach()
        self._client, self._processor = client, client.output_processor
        watches = (self._add_request, self._abort_requests, self._update_stats_from_finished)
        for name, watch in zip(_WATCHED, watches, strict=True):
            setattr(self._processor, name, watch(getattr(self._processor, name)))
        for name in _BREAKING:
            # A client of another make may have no way to pause.
            if (method := getattr(client, name, None)) is not None:
                setattr(client, name, self._breaking(method))

    def detach(self) -> None:
        """Give vLLM its methods back; idempotent. HTTP requests under way can still take what has ended."""
        if self._processor is None:
            return
        for owner, names in ((self._processor, _WATCHED), (self._client, _BREAKING)):
            for name in names:
                vars(owner).pop(name, None)
        self._client = self._processor = None

    def take(self, ids: RequestIds, *, with_running: bool) -> EngineRequests | None:
        """Return the numbers of the HTTP request ``ids``, which ends; None if no engine request of it counts.

        ``with_running``: those count that run still, with what they have come to. All others are recorded by
        themselves when they end. Never raises.
        """
        found = self._open.pop(ids, None)
        if found is None or not self._finished:
            return None
        try:
            if with_running and self._processor is not None:
                states = self._processor.request_states
                for name, state in found.running.items():
                    # One that a paused engine refused leaves without a word.
                    if states.get(name) is state:
                        state.inference_logging.is_counted = True
                        found.add(_of_state(state, self._only_engine, None))
            return found if found.requests else None
        except Exception as error:  # noqa: BLE001 - a request never fails because of logging
            self._requests_failed(error)
            return None

    def _add_request(self, add_request: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``add_request``, after which the request knows its origin."""

        def watched(
            request: Any, prompt: Any, parent_req: Any = None, request_index: int = 0, queue: Any = None
        ) -> Any:
            added = add_request(request, prompt, parent_req, request_index, queue)
            try:
                self._began(request.request_id)
            except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
                self._requests_failed(error)
            return added

        return watched

    def _began(self, name: str) -> None:
        state = self._processor.request_states[name]
        if hasattr(state, "inference_logging"):
            return  # more input for a request that runs
        ids = REQUEST.get()
        state.inference_logging = Origin(ids)
        if ids is not None and ids.awaits_engine:
            of_request = self._open.get(ids)
            if of_request is None:
                of_request = self._open[ids] = EngineRequests()
            of_request.running[name] = state

    def _update_stats_from_finished(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``update``, after which the numbers are counted: before the client can have its last part."""

        def watched(req_state: Any, finish_reason: Any, iteration_stats: Any) -> Any:
            updated = update(req_state, finish_reason, iteration_stats)
            try:
                if self._finished and iteration_stats is not None:
                    stats = iteration_stats.finished_requests[-1]
                    entry = _of_statistics(stats, self._only_engine, is_first=req_state.request_index == 0)
                    self._ended(req_state, entry, asked=bool(self._breaks) if entry.finish_reason == "abort" else None)
            except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
                self._requests_failed(error)
            return updated

        return watched

    def _abort_requests(self, abort_requests: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``abort_requests``, after which the numbers are counted: vLLM's statistics leave them out."""

        def watched(request_ids: Iterable[str], internal: bool) -> Any:
            request_ids = list(request_ids)
            states = self._states(request_ids, internal=internal)
            aborted = abort_requests(request_ids, internal)
            try:
                caller = REQUEST.get()
                for state in states:
                    # A request that aborts its own ends as it says itself.
                    own = caller is getattr(state, "inference_logging", _UNKNOWN).ids or (internal and caller is None)
                    self._ended(state, _of_state(state, self._only_engine, "abort"), asked=None if own else True)
            except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
                self._requests_failed(error)
            return aborted

        return watched

    def _states(self, request_ids: list[str], *, internal: bool) -> list[Any]:
        try:
            processor = self._processor
            if processor is None or not self._finished:
                return []
            if not internal:
                request_ids = [name for given in request_ids for name in processor.external_req_ids.get(given, ())]
            # A parent (n > 1) has no state: vLLM comes here again with its children.
            states = processor.request_states
            return [states[name] for name in request_ids if name in states]
        except Exception as error:  # noqa: BLE001 - nothing may escape into vLLM
            self._requests_failed(error)
            return []

    def _breaking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``method``; requests that the engine gives up meanwhile are given up because of it."""

        async def watched(*arguments: Any, **keywords: Any) -> Any:
            self._breaks += 1
            try:
                return await method(*arguments, **keywords)
            finally:
                self._breaks -= 1

        return watched

    def _ended(self, state: Any, entry: Finished, *, asked: bool | None) -> None:
        origin: Origin = getattr(state, "inference_logging", _UNKNOWN)
        if origin is _UNKNOWN:
            self._emit(entry, None)
            return
        ids = origin.ids
        if ids is None or (origin.is_counted and entry.finish_reason == "abort"):
            return
        of_request = self._open.get(ids)
        if of_request is None:
            self._emit(entry, ids)
            return
        of_request.running.pop(state.request_id, None)
        of_request.add(entry)
        if asked is not None:
            of_request.asked = asked or bool(of_request.asked)

    def _requests_failed(self, error: Exception) -> None:
        self._finished = off(self._finished, "records of engine requests", error)

    def _statistics_failed(self, error: Exception) -> None:
        off(self._statistics is not None, "engine.stats records", error)
        self._statistics = None


def _of_statistics(stats: Any, index: int | None, *, is_first: bool = True) -> Finished:
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
        is_first,
    )


def _of_state(state: Any, index: int | None, reason: str | None) -> Finished:
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
        reason,
        seconds(stats.scheduled_ts - stats.queued_ts) if scheduled else None,
        seconds(stats.first_token_ts - stats.scheduled_ts) if scheduled else None,
        seconds(stats.last_token_ts - stats.first_token_ts) if begun else None,
        seconds(time.time() - stats.arrival_time),
        stats.num_preemptions,
        state.request_index == 0,
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
