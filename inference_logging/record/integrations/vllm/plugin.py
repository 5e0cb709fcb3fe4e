"""The plugin that vLLM calls in each of its processes: the entry point of the group ``vllm.general_plugins``.

While ``engine_records`` is off it only reads the configuration. This package's class for statistics is not an entry
point of the installed package: that alone would make vLLM collect statistics, also with ``--disable-log-stats``. It
becomes one, by ``importlib.metadata``'s own interface, in processes that are configured so.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder
from os import PathLike
from pathlib import Path

from inference_logging.record.config import Config

_NAME = "inference-logging-vllm-statistics"
_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 0\n",
    # The name is that of the other entry point, so that VLLM_PLUGINS allows both or none.
    "entry_points.txt": "[vllm.stat_logger_plugins]\n"
    "inference_logging = inference_logging.record.integrations.vllm.engine:EngineStatLogger\n",
}


def register() -> None:
    """Let vLLM find what ``engine_records`` requires; idempotent. Raises ConfigError, which ends the start."""
    config = Config()
    records = config.engine_records == "on" and config.enabled == "on"
    served_by_rust = _served_by_rust()
    if served_by_rust and _in_launcher() and (records or _middleware_asked_for()):
        sys.stderr.write(_without_python(engine_records=records))
    if not records:
        return
    if served_by_rust:
        from inference_logging.record.integrations.vllm import core

        core.follow_schedulers()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


class _Statistics(Distribution):
    """A distribution of one entry point, without files."""

    def read_text(self, filename: str) -> str | None:
        """Return the text of a metadata file."""
        return _FILES.get(filename)

    def locate_file(self, path: str | PathLike[str]) -> Path:
        """Return where a file would be: the distribution has none."""
        return Path(path)


class _Finder(DistributionFinder):
    """Finds that distribution; no modules."""

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008 - the interface's own default
    ) -> Iterator[Distribution]:
        """Return it, if it or all are looked for."""
        return iter([_Statistics()] if context.name in (None, _NAME) else [])

    def find_spec(self, *_arguments: object) -> None:
        """Find no module."""


def _served_by_rust() -> bool:
    from vllm import envs

    # Only `vllm serve` looks at the variable.
    return bool(getattr(envs, "VLLM_USE_RUST_FRONTEND", False)) and sys.argv[1:2] == ["serve"]


def _in_launcher() -> bool:
    return multiprocessing.parent_process() is None


def _middleware_asked_for() -> bool:
    return any("inference_logging." in argument for argument in sys.argv)


def _without_python(*, engine_records: bool) -> str:
    kept = (
        "engine.request and engine.stats records are made by the engine's own process"
        if engine_records
        else "INFERENCE_LOGGING_ENGINE_RECORDS=on would record the engine's requests"
    )
    return (
        "inference_logging: VLLM_USE_RUST_FRONTEND: HTTP is served by Rust, without any middleware, so there are no "
        f"request records (take --middleware away, which vLLM refuses then); {kept}\n"
    )
