"""What an inference engine behind the server adds to the records."""

from __future__ import annotations

from typing import Literal

from inference_logging.config.fields import Parameters, parameter


class EngineParameters(Parameters):
    """What an inference engine behind the server adds to the records."""

    engine_records: Literal["off", "on"] = parameter(
        "off",
        "on: the engine's own times, token counts and finish reasons join the record of each request, or stand in an "
        "`engine.request` record where they cannot. For vLLM; needs its plugin `inference_logging`, which is loaded "
        "unless VLLM_PLUGINS leaves it out.",
    )
    engine_stats_interval_s: float = parameter(
        10.0,
        "Time between two `engine.stats` records of an engine that is at work, where engine_records is on. 0 = none.",
        unit="seconds",
        limits=(0, 86400),
        advanced=True,
    )
