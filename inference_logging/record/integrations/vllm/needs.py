"""The attributes of vLLM's classes that are needed, and the one place that checks whether this version has them.

vLLM calls its statistics unstable. A missing attribute is reported at start by name, once; that part is switched off,
and everything else goes on. ``name(parameters)`` is a method that is wrapped: it must be called with its own
parameters.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping

from inference_logging.record.integrations.vllm.records import report_lacking

Needs = Mapping[tuple[str, str], tuple[str, ...]]

_STATS = "vllm.v1.metrics.stats"
_OUTPUTS = "vllm.v1.engine.output_processor"
_ENGINE = "vllm.v1.engine"
_SCHEDULER = "vllm.v1.core.sched.scheduler"

METADATA: Needs = {
    ("vllm.entrypoints.generate.base.protocol", "RequestResponseMetadata"): ("request_id", "final_usage_info"),
    ("vllm.entrypoints.serve.engine.protocol", "UsageInfo"): (
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
    ),
}
"""For the usage and the engine's id in the records of requests."""

FINISHED: Needs = {
    (_STATS, "IterationStats"): ("finished_requests",),
    (_STATS, "FinishedRequestStats"): (
        "request_id",
        "finish_reason",
        "num_prompt_tokens",
        "num_generation_tokens",
        "num_cached_tokens",
        "num_preemptions",
        "queued_time",
        "prefill_time",
        "decode_time",
        "e2e_latency",
    ),
}
"""For `engine.request`."""

JOINED: Needs = {
    ("vllm.v1.engine.async_llm", "AsyncLLM"): ("output_processor", "errored", "pause_generation", "sleep"),
    (_OUTPUTS, "OutputProcessor"): (
        "add_request(self, request, prompt, parent_req, request_index, queue)",
        "abort_requests(self, request_ids, internal)",
        "_update_stats_from_finished(self, req_state, finish_reason, iteration_stats)",
        "request_states",
        "external_req_ids",
    ),
    (_OUTPUTS, "RequestState"): ("external_req_id", "request_index", "prompt_len", "num_cached_tokens", "stats"),
    (_STATS, "RequestStateStats"): (
        "num_generation_tokens",
        "num_preemptions",
        "arrival_time",
        "queued_ts",
        "scheduled_ts",
        "first_token_ts",
        "last_token_ts",
    ),
}
"""For the engine's numbers in the records of requests, also of those that are aborted."""

GAUGES: Needs = {
    (_STATS, "SchedulerStats"): (
        "num_running_reqs",
        "num_waiting_reqs",
        "num_skipped_waiting_reqs",
        "kv_cache_usage",
        "prefix_cache_stats",
        "spec_decoding_stats",
    ),
    (_STATS, "PrefixCacheStats"): ("queries", "hits"),
    ("vllm.v1.spec_decode.metrics", "SpecDecodingStats"): ("num_drafts", "num_draft_tokens", "num_accepted_tokens"),
}

STATISTICS: Needs = {
    **GAUGES,
    (_STATS, "IterationStats"): (
        "finished_requests",
        "num_generation_tokens",
        "num_preempted_reqs",
        "prompt_token_stats",
    ),
    (_STATS, "PromptTokenStats"): ("total",),
}
"""For `engine.stats`."""

SCHEDULED: Needs = {
    (_SCHEDULER, "Scheduler"): ("update_from_output", "finish_requests", "requests", "log_stats", "vllm_config"),
    ("vllm.v1.request", "Request"): (
        "request_id",
        "events",
        "num_prompt_tokens",
        "num_output_tokens",
        "num_preemptions",
        "get_finished_reason",
    ),
    (_ENGINE, "EngineCoreOutputs"): ("outputs", "timestamp", "scheduler_stats"),
    (_ENGINE, "EngineCoreOutput"): ("request_id", "new_token_ids", "finish_reason", "events", "prefill_stats"),
    (_ENGINE, "EngineCoreEvent"): ("type", "timestamp"),
    (_STATS, "PrefillStats"): ("num_prompt_tokens", "num_cached_tokens"),
    **GAUGES,
}
"""For both, where only the engine's own process runs Python."""


def missing(needs: Needs) -> list[str]:
    """Return what this vLLM lacks of ``needs``: ``module.Class``, ``module.Class.name`` or a method's parameters."""
    found = []
    for (module, class_name), names in needs.items():
        try:
            kind = getattr(importlib.import_module(module), class_name)
        except (ImportError, AttributeError):
            found.append(f"{module}.{class_name}")
            continue
        found += [f"{module}.{class_name}.{name}" for name in names if not _has(kind, name)]
    return found


def whole(part: str, needs: Needs) -> bool:
    """Return whether this vLLM has all that ``part`` needs; report what it lacks by name, which must happen once."""
    lacks = missing(needs)
    if lacks:
        report_lacking(f"there are no {part}: this vLLM has no {', '.join(lacks)}")
    return not lacks


def _has(kind: type, name: str) -> bool:
    name, _, parameters = name.partition("(")
    if parameters:
        method = getattr(kind, name, None)
        return callable(method) and f"{', '.join(inspect.signature(method).parameters)})" == parameters
    return hasattr(kind, name) or any(name in _instance_names(base) for base in kind.__mro__)


def _instance_names(kind: type) -> set[str]:
    # Fields of dataclasses and structures, and attributes that a constructor sets: vLLM's classes are not instantiated
    # for the check.
    constructor = vars(kind).get("__init__")
    code = getattr(inspect.unwrap(constructor), "__code__", None) if callable(constructor) else None
    return {*vars(kind).get("__annotations__", {}), *(code.co_names if code is not None else ())}
