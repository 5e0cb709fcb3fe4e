"""vLLM's server around the middleware: usage of every request, and the engine's statistics of it.

Written against vLLM 0.33. ``request_metadata`` is what vLLM's routes leave in a request's state for middlewares. What
this version of vLLM lacks is reported at start by name, once; the records go on without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from inference_logging._native import EngineReader
from inference_logging.record.integrations.vllm.needs import METADATA, whole
from inference_logging.record.integrations.vllm.records import ID_CHARACTERS, off, report_lacking
from inference_logging.record.integrations.vllm.started import reported_by

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
