"""Which records are kept."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator

from inference_logging import sampling
from inference_logging._fields import parameter, possible_ratio, upper


class SamplingParameters(BaseModel):
    """Which records are kept."""

    level: Annotated[Literal["DEBUG", "INFO", "WARN", "ERROR"], BeforeValidator(upper)] = parameter(
        "INFO",
        "Lowest severity that get_logger accepts; records below it are ignored and not counted. Request records are "
        "not affected.",
    )
    sample_ratio: Annotated[float, AfterValidator(possible_ratio)] = parameter(
        1.0,
        "Share of traces whose successful requests are recorded, decided by trace id; errors are kept regardless. "
        "0 = errors only.",
        unit="share of traces",
        allowed="0, or from 2**-56 to 1",
    )
    sample_precision: int = parameter(
        4,
        "Significant hex digits of the rejection threshold made from sample_ratio: 4 is the recommendation of "
        "OpenTelemetry, 14 is exact.",
        unit="hex digits",
        limits=(1, sampling.MAX_PRECISION),
    )
