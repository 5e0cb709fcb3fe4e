"""vLLM's server around the middleware: each request's usage and statistics of the engine, and what vLLM says of itself.

Written against vLLM 0.33. ``request_metadata`` is what vLLM's routes leave in a request's state for middlewares. What
this version of vLLM lacks is reported at start by name, once; the records go on without it. A field of
``server.started`` whose attribute is missing is left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from inference_logging._native import EngineReader
from inference_logging.record.integrations.vllm.needs import METADATA, whole
from inference_logging.record.integrations.vllm.records import ID_CHARACTERS, off, report_lacking

if TYPE_CHECKING:
    from inference_logging._native import RequestIds
    from inference_logging.record.config import Config
    from inference_logging.record.integrations.vllm.engine import EngineStatLogger

_FACTS = "engine's facts in the records of requests"


def attach(app: object, config: Config) -> Server | None:
    """Return the server in which ``app`` runs, or None if it is not vLLM's."""
    if "vllm" not in sys.modules:
        return None
    client = getattr(getattr(app, "state", None), "engine_client", None)
    return None if client is None else Server(client, config)


class Server:
    """A vLLM API server in this process."""

    def __init__(self, client: Any, config: Config) -> None:
        """Inspect ``client`` (``vllm.engine.protocol.EngineClient``), and report what is missing."""
        observability = getattr(getattr(client, "vllm_config", None), "observability_config", None)
        self.traces = bool(getattr(observability, "otlp_traces_endpoint", None))
        self._client = client
        self._engine = _stat_logger(client) if config.engine_records == "on" else None
        self.reported = reported_by(client)
        """What is known of engine and model, for `server.started`."""
        self.reader: EngineReader | None = None
        """Reads what the engine has for the record of a request."""
        if whole(_FACTS, METADATA):
            take = self._take if self._engine is not None else None
            self.reader = EngineReader(take=take, failed=self._failed, id_characters=ID_CHARACTERS)

    def _take(self, ids: RequestIds, broke_off: bool) -> tuple[object, ...] | None:
        if self._engine is None:
            return None
        # What runs still is counted where nothing more of it will reach the client; else (a response in the background)
        # it goes on, and is recorded at its end.
        found = self._engine.take(ids, with_running=broke_off or bool(getattr(self._client, "errored", False)))
        return None if found is None else found.values()

    def _failed(self, error: Exception) -> None:
        off(True, _FACTS, error)
        self.detach()

    def detach(self) -> None:
        """Leave the engine alone: no request is recorded any more."""
        if self._engine is not None:
            self._engine.detach()


def _stat_logger(client: Any) -> EngineStatLogger | None:
    from inference_logging.record.integrations.vllm.engine import EngineStatLogger

    manager = getattr(client, "logger_manager", None)
    for candidate in getattr(manager, "stat_loggers", ()):
        if isinstance(candidate, EngineStatLogger):
            candidate.attach(client)
            return candidate
    report_lacking(
        "engine_records='on': vLLM has not loaded the plugin 'inference_logging'; is the package installed, and does "
        "VLLM_PLUGINS name it? Requests are recorded without the engine's times"
    )
    return None


ARGUMENTS: Final = {
    "model_config": ("max_model_len", "seed", "enforce_eager", "max_logprobs", "runner_type"),
    "cache_config": ("block_size", "cache_dtype", "gpu_memory_utilization", "enable_prefix_caching", "num_gpu_blocks"),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "policy"),
    "load_config": ("load_format",),
    "speculative_config": ("method", "num_speculative_tokens"),
    "lora_config": ("max_loras", "max_lora_rank"),
}
"""The arguments that are recorded: no path, no address, no key, no command."""
_PARALLEL: Final = {
    "tensor": "tensor_parallel_size",
    "pipeline": "pipeline_parallel_size",
    "data": "data_parallel_size",
    "expert": "enable_expert_parallel",
}


def reported_by(client: Any) -> dict[str, object]:
    """Return the fields of ``server.started`` that an engine client (``vllm.engine.protocol.EngineClient``) has."""
    configs = getattr(client, "vllm_config", None)
    model, parallel = getattr(configs, "model_config", None), getattr(configs, "parallel_config", None)
    dtype = getattr(model, "dtype", None)
    arguments = {
        f"{config}.{name}": value
        for config, names in ARGUMENTS.items()
        for name in names
        if (value := _simple(getattr(getattr(configs, config, None), name, None))) is not None
    }
    found = {
        "engine.name": "vllm",
        "engine.version": getattr(sys.modules.get("vllm"), "__version__", None),
        "model.name": getattr(model, "model", None),
        "model.revision": getattr(model, "revision", None) or _commit_of(model),
        "model.dtype": None if dtype is None else str(dtype).removeprefix("torch."),
        "model.quantization": getattr(model, "quantization", None),
        "model.max_tokens": getattr(model, "max_model_len", None),
        "engine.parallelism": {
            kind: value
            for kind, name in _PARALLEL.items()
            if (value := _simple(getattr(parallel, name, None))) is not None
        },
        "engine.arguments": arguments,
    }
    simple = {name: value if isinstance(value, dict) else _simple(value) for name, value in found.items()}
    return {name: value for name, value in simple.items() if value is not None and value != {}}


def _commit_of(model: Any) -> object:
    """Return the commit of the hub's repository that was loaded where no revision was asked for."""
    return getattr(getattr(model, "hf_config", None), "_commit_hash", None)


def _simple(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float) else None
