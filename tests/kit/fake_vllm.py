"""As much of vLLM as the engine's records look at, in this process only, and with nothing behind it."""

from __future__ import annotations

import asyncio
import enum
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel


class FinishReason(enum.IntEnum):
    STOP = 0
    LENGTH = 1
    ABORT = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass
class FinishedRequestStats:
    finish_reason: FinishReason = FinishReason.LENGTH
    request_id: str | None = "chatcmpl-1"
    e2e_latency: float = 0.5
    num_prompt_tokens: int = 5
    num_preemptions: int = 0
    num_generation_tokens: int = 7
    max_tokens_param: int | None = 16
    queued_time: float = 0.001
    prefill_time: float = 0.002
    decode_time: float = 0.003
    num_cached_tokens: int = 0


@dataclass
class PromptTokenStats:
    total: int = 0


class IterationStats:
    def __init__(self, *finished: FinishedRequestStats, tokens: int = 0, prompt_tokens: int = 0) -> None:
        self.finished_requests = list(finished)
        self.num_generation_tokens = tokens
        self.num_preempted_reqs = 0
        self.prompt_token_stats = PromptTokenStats(prompt_tokens)


@dataclass
class PrefixCacheStats:
    queries: int = 0
    hits: int = 0


@dataclass
class SpecDecodingStats:
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass
class SchedulerStats:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    spec_decoding_stats: SpecDecodingStats | None = None


@dataclass
class RequestStateStats:
    num_generation_tokens: int = 0
    num_preemptions: int = 0
    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0


class RequestState:
    def __init__(
        self, request_id: str, external_req_id: str, request_index: int, stats: RequestStateStats, prompt_len: int = 5
    ) -> None:
        self.request_id = request_id
        self.external_req_id = external_req_id
        self.request_index = request_index
        self.prompt_len = prompt_len
        self.num_cached_tokens = 0
        self.stats = stats


class OutputProcessor:
    """Requests that run, by internal id; a parent is a name for its children."""

    def __init__(self) -> None:
        self.request_states: dict[str, RequestState] = {}
        self.external_req_ids: dict[str, list[str]] = {}
        self.children: dict[str, list[str]] = {}

    def run(self, internal: str, external: str, request_index: int = 0, **stats: float) -> None:
        """Let a request run, in the context of this call."""
        request = SimpleNamespace(request_id=internal, external_req_id=external)
        self.add_request(request, None, None, request_index, None)
        vars(self.request_states[internal].stats).update(stats)

    def add_request(
        self, request: Any, prompt: object, parent_req: object = None, request_index: int = 0, queue: object = None
    ) -> None:
        internal, external = request.request_id, request.external_req_id
        if internal not in self.request_states:
            self.request_states[internal] = RequestState(internal, external, request_index, RequestStateStats())
            self.external_req_ids.setdefault(external, []).append(internal)

    def end(self, internal: str, **values: Any) -> IterationStats:
        """Let a request end as it should; return the statistics of the batch in which it does."""
        state, batch = self.request_states[internal], IterationStats()
        self.finish(internal)
        stats = FinishedRequestStats(request_id=state.external_req_id, **values)
        self._ending = stats
        self._update_stats_from_finished(state, stats.finish_reason, batch)
        return batch

    def _update_stats_from_finished(
        self, req_state: RequestState, finish_reason: FinishReason, iteration_stats: IterationStats
    ) -> None:
        iteration_stats.finished_requests.append(self._ending)

    def finish(self, internal: str) -> None:
        """Let a request leave."""
        external = self.request_states.pop(internal).external_req_id
        self.external_req_ids[external].remove(internal)
        if not self.external_req_ids[external]:
            del self.external_req_ids[external]

    def abort_requests(self, request_ids: Iterable[str], internal: bool) -> list[str]:
        aborted: list[str] = []
        names = list(request_ids)
        if not internal:
            names = [internal_id for name in names for internal_id in self.external_req_ids.get(name, ())]
        for name in names:
            if name in self.request_states:
                self.finish(name)
                aborted.append(name)
            else:
                aborted += self.abort_requests(self.children.pop(name, []), internal=True)
        return aborted


class AsyncLLM:
    errored = False

    def __init__(self) -> None:
        self.output_processor = OutputProcessor()

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        await asyncio.sleep(0)

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        await asyncio.sleep(0)


class AggregateStatLoggerBase:
    pass


class EngineCoreEventType(enum.IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


@dataclass
class EngineCoreEvent:
    type: EngineCoreEventType
    timestamp: float


@dataclass
class PrefillStats:
    num_prompt_tokens: int = 5
    num_cached_tokens: int = 0


@dataclass
class EngineCoreOutput:
    request_id: str
    new_token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    events: list[EngineCoreEvent] | None = None
    prefill_stats: PrefillStats | None = None


@dataclass
class EngineCoreOutputs:
    outputs: list[EngineCoreOutput] = field(default_factory=list)
    timestamp: float = 0.0
    scheduler_stats: SchedulerStats | None = None


class Request:
    def __init__(self, request_id: str, reason: FinishReason | None = None) -> None:
        self.request_id = request_id
        self.events: list[EngineCoreEvent] = []
        self.num_prompt_tokens = 5
        self.num_output_tokens = 0
        self.num_preemptions = 0
        self.reason = reason

    def get_finished_reason(self) -> FinishReason | None:
        return self.reason


class Scheduler:
    """Returns what a test gives it as its next step or end."""

    def __init__(self, *, log_stats: bool = True, speculative_config: object = None) -> None:
        self.log_stats = log_stats
        self.requests: dict[str, Request] = {}
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=1), speculative_config=speculative_config
        )

    def update_from_output(self, batches: dict[int, EngineCoreOutputs]) -> dict[int, EngineCoreOutputs]:
        return batches

    def finish_requests(self, requests: list[Request], status: object = None) -> list[Request]:
        return requests


_STATS = (FinishedRequestStats, IterationStats, PromptTokenStats, PrefixCacheStats, SchedulerStats, RequestStateStats)
_MODULES: dict[str, tuple[type, ...]] = {
    "vllm": (),
    "vllm.v1": (),
    "vllm.v1.core": (),
    "vllm.v1.core.sched": (),
    "vllm.v1.core.sched.scheduler": (Scheduler,),
    "vllm.v1.engine": (EngineCoreOutputs, EngineCoreOutput, EngineCoreEvent),
    "vllm.v1.engine.async_llm": (AsyncLLM,),
    "vllm.v1.engine.output_processor": (OutputProcessor, RequestState),
    "vllm.v1.metrics": (),
    "vllm.v1.metrics.loggers": (AggregateStatLoggerBase,),
    "vllm.v1.metrics.stats": (*_STATS, PrefillStats),
    "vllm.v1.request": (Request,),
    "vllm.v1.spec_decode": (),
    "vllm.v1.spec_decode.metrics": (SpecDecodingStats,),
}


def install(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put the modules where imports find them; return them by name."""
    modules: dict[str, Any] = {}
    for name, classes in _MODULES.items():
        modules[name] = types.ModuleType(name)
        for kind in classes:
            # One of this test: what is followed is changed.
            setattr(modules[name], kind.__name__, type(kind.__name__, (kind,), {}))
        monkeypatch.setitem(sys.modules, name, modules[name])
    modules["vllm.envs"] = types.ModuleType("vllm.envs")
    modules["vllm.envs"].VLLM_USE_RUST_FRONTEND = False
    modules["vllm"].envs = modules["vllm.envs"]
    monkeypatch.setitem(sys.modules, "vllm.envs", modules["vllm.envs"])
    # Only for this test: it inherits from vLLM's class.
    monkeypatch.delitem(sys.modules, "inference_logging.record.integrations.vllm.engine", raising=False)
    return modules


class UsageInfo(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: SimpleNamespace | None = None
    model_config = {"arbitrary_types_allowed": True}


class RequestResponseMetadata(BaseModel):
    request_id: str
    final_usage_info: UsageInfo | None = None
