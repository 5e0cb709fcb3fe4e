"""What Triton says of a model and of itself for the record ``server.started``.

The model's configuration can hold anything under ``parameters``, and the server's command line paths and keys, so only
what stands in a list here is taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_VERSIONS: Final = ("TRITON_SERVER_VERSION", "NVIDIA_TRITON_SERVER_VERSION")
"""Variables with which the images of Triton say which version they hold: the server's, then the release's."""
_FLAGS: Final = (
    "model-control-mode",
    "strict-readiness",
    "disable-auto-complete-config",
    "exit-timeout-secs",
    "rate-limit",
    "model-load-thread-count",
    "buffer-manager-thread-count",
    "pinned-memory-pool-byte-size",
    "cuda-memory-pool-byte-size",
    "response-cache-byte-size",
)
"""Arguments of the server that are recorded."""


def reported_by(
    args: Mapping[str, str], model_config: Mapping[str, Any], command_line: Path | None = None
) -> dict[str, object]:
    """Return the fields of ``server.started`` that Triton gives to ``initialize``.

    ``command_line`` is the file with the server's arguments, each ended by a zero byte: that of the parent process
    unless given.
    """
    groups = [group for group in model_config.get("instance_group", ()) if isinstance(group, dict)]
    version = next(filter(None, map(os.environ.get, _VERSIONS)), None)
    found: dict[str, object] = {
        "engine.name": "triton",
        "engine.version": version,
        "model.name": args["model_name"],
        "model.version": args["model_version"],
        "engine.parallelism": {"instances": sum(int(group.get("count") or 1) for group in groups)} if groups else None,
        "engine.arguments": {
            **_of_model(args, model_config),
            **_of_server(command_line or Path(f"/proc/{os.getppid()}/cmdline")),
        },
    }
    return {name: value for name, value in found.items() if value}


def _of_model(args: Mapping[str, str], model_config: Mapping[str, Any]) -> dict[str, object]:
    policy = model_config.get("model_transaction_policy") or {}
    found = {
        "model_config.backend": model_config.get("backend"),
        "model_config.platform": model_config.get("platform"),
        "model_config.max_batch_size": model_config.get("max_batch_size"),
        "model_config.decoupled": bool(policy.get("decoupled")),
        "model_config.dynamic_batching": "dynamic_batching" in model_config,
        "model_config.sequence_batching": "sequence_batching" in model_config,
        "model_instance_kind": args.get("model_instance_kind"),
        "model_instance_device_id": args.get("model_instance_device_id"),
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _of_server(command_line: Path) -> dict[str, object]:
    try:
        words = command_line.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    found: dict[str, object] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, has_value, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _FLAGS:
            is_apart = not has_value and following and not following.startswith("-")
            found[f"server.{name}"] = value if has_value else following if is_apart else "true"
    return found
