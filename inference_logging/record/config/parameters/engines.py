"""What inference engines add to the records: one behind the server, and Triton's Python backend."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import FewAndDifferent, Parameters, matching, parameter, split_list


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


_MOST_NAMES = 64
_NAME = re.compile(r"[^\x00-\x1f\x7f,]{1,128}")

Names = Annotated[
    tuple[Annotated[str, matching(_NAME)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(_MOST_NAMES)),
]


class TritonParameters(Parameters):
    """Records of requests that a model of Triton's Python backend serves."""

    triton_tensors: Literal["on", "off"] = parameter(
        "on",
        "Whether names, types, shapes and bytes of a request's inputs and outputs are recorded; this calls Triton's "
        "bindings for each tensor.",
    )
    triton_metrics: Literal["off", "on"] = parameter(
        "off",
        "on: each model instance also reports its own counts to Triton, every 10 s, as custom metrics on Triton's "
        "port.",
    )
    triton_parameters: Names = parameter(
        (),
        "Request parameters whose values are recorded; others never are. Headers that Triton forwards are request "
        "parameters too.",
        allowed=f"at most {_MOST_NAMES} names of 1 to 128 characters, each once",
    )
