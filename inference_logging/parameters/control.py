"""What may be changed while the servers run."""

from __future__ import annotations

from inference_logging._fields import Parameters, parameter


class ControlParameters(Parameters):
    """What may be changed while the servers run."""

    control_limit_s: float = parameter(
        900.0,
        "Longest time for which `inference-logging ctl` changes something; at its end everything is again as "
        "configured.",
        unit="s",
        limits=(1.0, 7 * 86_400.0),
    )
