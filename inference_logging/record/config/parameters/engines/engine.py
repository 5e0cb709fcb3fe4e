"""Additions of an inference engine behind the server to the records."""

from __future__ import annotations

from typing import Literal

from inference_logging.record.config.fields import Parameters, parameter


class EngineParameters(Parameters):
    """Additions of an inference engine behind the server to the records."""

    engine_records: Literal["off", "on"] = parameter(
        "off",
        "on: the engine's own times, token counts and finish reasons are added to the record of each request, or "
        "written as an `engine.request` record if they cannot be added. For vLLM; needs its plugin "
        "`inference_logging`, which is loaded unless VLLM_PLUGINS leaves it out.",
    )
    engine_stats_interval_s: float = parameter(
        10.0,
        "Time between two `engine.stats` records of a working engine, if engine_records is on. 0 = none.",
        unit="seconds",
        limits=(0, 86400),
        advanced=True,
    )
