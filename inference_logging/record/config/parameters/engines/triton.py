"""Records of requests that a model of Triton's Python backend serves."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import FewAndDifferent, Parameters, matching, parameter, split_list

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
