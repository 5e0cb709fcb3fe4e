"""vLLM's server around the middleware: usage of every request, and what its engine tells of it.

Written against vLLM 0.33. ``request_metadata`` is what vLLM's routes leave in a request's state for middlewares. What
this version of vLLM lacks is told once, at start; the records go on without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from inference_logging.integrations.vllm_needs import METADATA, whole
from inference_logging.integrations.vllm_records import ID_CHARACTERS, off, tell

if TYPE_CHECKING:
    from inference_logging._native import RequestIds
    from inference_logging.config import Config
    from inference_logging.integrations.vllm_engine import EngineStatLogger

MAX_FINISH_REASONS = 16
"""As many as are read from a response."""

_FACTS = "engine's facts in the records of requests"


def attach(app: object, config: Config) -> Server | None:
    """Return what there is to know of the server in which ``app`` runs, or None if that is not vLLM's."""
    if "vllm" not in sys.modules:
        return None
    client = getattr(getattr(app, "state", None), "engine_client", None)
    return None if client is None else Server(client, config)


class Server:
    """A vLLM API server in this process."""

    def __init__(self, client: Any, config: Config) -> None:
        """Look at ``client`` (``vllm.engine.protocol.EngineClient``), and say what is missing."""
        observability = getattr(getattr(client, "vllm_config", None), "observability_config", None)
        self.traces = bool(getattr(observability, "otlp_traces_endpoint", None))
        self._engine = _stat_logger(client) if config.engine_records == "on" else None
        self._tells = whole(_FACTS, METADATA)

    def read(self, scope: dict[str, Any], ids: RequestIds) -> tuple[object, ...] | None:
        """Return what is known of a request that ends: whether the engine gave it up, then the values of its record.

        These are those of the fields from the engine's ``gen_ai.usage.input_tokens`` on (``native/src/event.rs``). None
        if vLLM did not get to generating anything.
        """
        state = scope.get("state")
        metadata = state.get("request_metadata") if type(state) is dict else None
        if metadata is None or not self._tells:
            return None
        try:
            return self._facts(metadata.request_id, metadata.final_usage_info, ids)
        except Exception as error:  # noqa: BLE001 - whatever vLLM has changed, its requests go on, and so do our records
            self._tells = off(self._tells, _FACTS, error)
            return None

    def _facts(self, request_id: str, usage: Any, ids: RequestIds) -> tuple[object, ...]:
        engine = self._engine.take(request_id, ids) if self._engine is not None else None
        request_id = request_id[:ID_CHARACTERS]
        if usage is not None:
            cached = getattr(usage.prompt_tokens_details, "cached_tokens", None)
            tokens = (usage.prompt_tokens, usage.completion_tokens, cached)
        elif engine is not None:
            tokens = (engine.input_tokens, engine.output_tokens, engine.cached_tokens)
        else:
            return False, None, None, None, None, request_id
        if engine is None:
            return False, *tokens, "engine", request_id
        aborted = "abort" in engine.finish_reasons
        return (
            aborted,
            tokens[0],
            tokens[1],
            engine.cached_tokens if tokens[2] is None else tokens[2],
            "engine",
            request_id,
            engine.requests,
            engine.finish_reasons[:MAX_FINISH_REASONS],
            engine.queued_s,
            engine.prefill_s,
            engine.decode_s,
            engine.e2e_s,
            engine.preemptions,
        )

    def detach(self) -> None:
        """Leave the engine alone: no request is recorded any more."""
        if self._engine is not None:
            self._engine.detach()


def _stat_logger(client: Any) -> EngineStatLogger | None:
    from inference_logging.integrations.vllm_engine import EngineStatLogger

    manager = getattr(client, "logger_manager", None)
    for candidate in getattr(manager, "stat_loggers", ()):
        if isinstance(candidate, EngineStatLogger):
            candidate.attach(client.output_processor)
            return candidate
    tell(
        "engine_records='on': vLLM has not loaded the plugin 'inference_logging'; is the package installed, and does "
        "VLLM_PLUGINS name it? Requests are recorded without the engine's times"
    )
    return None
