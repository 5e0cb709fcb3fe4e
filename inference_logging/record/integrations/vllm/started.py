"""What vLLM says of itself for the record ``server.started``: model, weights' type, parallelism, arguments.

Every attribute may be missing in another version of vLLM: its field is left out then.
"""

from __future__ import annotations

import sys
from typing import Any, Final

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
