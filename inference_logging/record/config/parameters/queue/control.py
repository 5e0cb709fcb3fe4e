"""Changes while the servers run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import Parameters, parameter


def on_or_off(value: Any) -> Any:
    """Turn True, False, ``true`` and ``false`` into ``on`` and ``off``; pass on anything else."""
    return {"true": "on", "false": "off"}.get(str(value).lower(), value) if isinstance(value, bool | str) else value


class ControlParameters(Parameters):
    """Changes while the servers run."""

    enabled: Annotated[Literal["on", "off"], BeforeValidator(on_or_off)] = parameter(
        "on",
        "off (or false): nothing is opened or recorded; requests pass through; loggers, events and the audit lane do "
        "nothing; the health routes report that. `inference-logging ctl disable` does the same for a limited time, "
        "without a restart, except for the audit lane.",
    )
    control_limit_s: float = parameter(
        900.0,
        "Longest time for a change by `inference-logging ctl`; after it everything is as configured again.",
        unit="s",
        limits=(1.0, 7 * 86_400.0),
        advanced=True,
    )
