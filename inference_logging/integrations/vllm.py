"""vLLM's server around the middleware: usage of every request, and what its engine tells of it.

Written against vLLM 0.33. ``request_metadata`` is what vLLM's routes leave in a request's state for middlewares. What
this version of vLLM lacks is told once, at start; the records go on without it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inference_logging._native import RequestIds
    from inference_logging.config import Config
    from inference_logging.integrations.vllm_engine import EngineStatLogger

MAX_ID_CHARACTERS = 256
"""A client chooses most of a request's id."""

_NEEDED = {
    "vllm.entrypoints.generate.base.protocol.RequestResponseMetadata": ("request_id", "final_usage_info"),
    "vllm.entrypoints.serve.engine.protocol.UsageInfo": (
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
    ),
}


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
        self._broken = False
        for name in missing():
            tell(f"this version of vLLM has no {name}: records of streams lack their usage and the engine's facts")

    def read(self, scope: dict[str, Any], ids: RequestIds) -> tuple[object, ...] | None:
        """Return what is known of a request that ends: whether the engine gave it up, then the values of its record.

        These are those of the fields from the engine's ``gen_ai.usage.input_tokens`` on (``native/src/event.rs``). None
        if vLLM did not get to generating anything.
        """
        state = scope.get("state")
        metadata = state.get("request_metadata") if type(state) is dict else None
        if metadata is None or self._broken:
            return None
        try:
            return self._facts(metadata.request_id, metadata.final_usage_info, ids)
        except Exception as error:  # noqa: BLE001 - whatever vLLM has changed, its requests go on, and so do our records
            self._broken = True
            tell(
                f"vLLM's request_metadata is not what it was ({type(error).__name__}: {error}); "
                "records go on without it"
            )
            return None

    def _facts(self, request_id: str, usage: Any, ids: RequestIds) -> tuple[object, ...]:
        engine = self._engine.take(request_id, ids) if self._engine is not None else None
        request_id = request_id[:MAX_ID_CHARACTERS]
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
            engine.finish_reasons,
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


def missing() -> list[str]:
    """Return the names of what this module needs of vLLM and does not find."""
    found = []
    for path, fields in _NEEDED.items():
        module, _, name = path.rpartition(".")
        try:
            model = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            found.append(path)
        else:
            found += [f"{path}.{field}" for field in fields if field not in model.model_fields]
    return found


def tell(message: str) -> None:
    """Say what an operator should know, on stderr and on record."""
    from inference_logging.logger import get_logger

    sys.stderr.write(f"inference_logging: {message}\n")
    get_logger("inference_logging.vllm").warning(message)
