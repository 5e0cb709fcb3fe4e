"""The rules of sampling in Python, by which the native sampler is judged.

OpenTelemetry's (specification/trace/tracestate-probability-sampling.md): with R, the low 56 bits of the trace id, and
the rejection threshold T = (1 - ratio) * 2**56, a trace is kept if and only if R >= T.
"""

from __future__ import annotations

import math
import re

from inference_logging import Config
from inference_logging._native import Sampler
from inference_logging.record.settings import settings

NEVER = 1 << 56
"""The threshold that no R reaches: nothing is kept. It has no ``th`` encoding."""

ALWAYS = 0
"""The threshold that every R reaches: everything is kept (``th:0``)."""

MIN_RATIO = 2.0**-56
"""The smallest ratio above 0 that a threshold can express."""

MAX_PRECISION = 14
"""All hex digits of a 56-bit threshold."""

_R_MASK = NEVER - 1
_BITS_PER_DIGIT = 4
_SIGN = 1 << 63
_TH = re.compile(r"[0-9a-f]{1,14}", re.ASCII)


def sampler(config: Config) -> Sampler:
    """Return the native sampler of a configuration."""
    return Sampler(settings(config))


def threshold(ratio: float, precision: int = 4) -> int:
    """Return T for ``ratio``, rounded to ``precision`` significant hex digits.

    Leading ``f`` digits (small ratios) or ``0`` digits (ratios near 1) do not count as significant, so the relative
    error of the kept share stays at the same scale for 1 % and for 0.0001 %.

    Raises ``ValueError`` unless ``ratio`` is 0 or 2**-56 … 1 and ``precision`` is 1 … 14.
    """
    if not 1 <= precision <= MAX_PRECISION:
        raise ValueError(f"precision={precision!r}: must be from 1 to {MAX_PRECISION} hex digits")
    if ratio == 0:
        return NEVER
    if not MIN_RATIO <= ratio <= 1:
        raise ValueError(f"ratio={ratio!r}: must be 0, or from 2**-56 to 1")
    if ratio == 1:
        return ALWAYS
    insignificant = max(_leading_zero_digits(ratio), _leading_zero_digits(1 - ratio))
    shift = _BITS_PER_DIGIT * (MAX_PRECISION - min(MAX_PRECISION, precision + insignificant))
    exact = NEVER - round(ratio * NEVER)
    half = (1 << shift) >> 1
    return (exact + half) >> shift << shift


def encode_th(t: int) -> str:
    """Return the ``th`` value of ``tracestate: ot=th:…``: lowercase hex, trailing zeros removed.

    Raises ``ValueError`` unless ``t`` is 0 … 2**56 - 1: ``NEVER`` can't be sent to others, such a trace is not kept.
    """
    if not 0 <= t < NEVER:
        raise ValueError(f"t={t!r}: must be from 0 to 2**56 - 1")
    return f"{t:014x}".rstrip("0") or "0"


def adjusted_count(t: int) -> float:
    """Return how many traces one kept trace stands for: 2**56 / (2**56 - T); 0.0 for ``NEVER``, where none is kept.

    Raises ``ValueError`` unless ``t`` is 0 … 2**56.
    """
    if not ALWAYS <= t <= NEVER:
        raise ValueError(f"t={t!r}: must be from 0 to 2**56")
    return NEVER / (NEVER - t) if t < NEVER else 0.0


def _leading_zero_digits(fraction: float) -> int:
    """Count the hex digits 0 between the point and the first other digit of ``fraction`` (below 1)."""
    return -math.frexp(fraction)[1] // _BITS_PER_DIGIT


def decode_th(th: str) -> int:
    """Return T for a ``th`` value.

    Raises ``ValueError`` unless ``th`` is 1 to 14 lowercase hex digits.
    """
    if not _TH.fullmatch(th):
        raise ValueError(f"th={th!r}: must be 1 to 14 lowercase hex digits")
    return int(th.ljust(MAX_PRECISION, "0"), 16)


def is_kept(trace_id: str | int, t: int) -> bool:
    """Decide for one trace: 32 hex digits, or the same as a number. Its low 56 bits are taken as random.

    Raises ``ValueError`` if the last 14 characters of a string aren't hex digits.
    """
    r = int(trace_id[-MAX_PRECISION:], 16) if isinstance(trace_id, str) else trace_id & _R_MASK
    return r >= t


def is_kept_legacy_python(trace_id: str | int, ratio: float) -> bool:
    """Decide as ``TraceIdRatioBased(ratio)`` of OpenTelemetry's SDK for Python; Go's is the same from 2**-11 on.

    Raises ``ValueError`` unless ``ratio`` is 0 to 1, or if the last 16 characters of a string aren't hex digits.
    """
    return _low_bits(trace_id) < round(_possible(ratio) * 2**64)


def is_kept_legacy_java(trace_id: str | int, ratio: float) -> bool:
    """Decide as ``TraceIdRatioBased(ratio)`` of OpenTelemetry's SDK for Java, which keeps other traces than Python's.

    Its edges are Java's too: ``ratio`` 1 leaves out two ids, and any ratio above 0 keeps the id that has no absolute
    value there. Raises as ``is_kept_legacy_python``.
    """
    low = _low_bits(trace_id)
    if _possible(ratio) == 0 or low == _SIGN:
        return ratio > 0
    return min(low, 2 * _SIGN - low) < min(int(ratio * _SIGN), _SIGN - 1)


def _low_bits(trace_id: str | int) -> int:
    return int(trace_id[-16:], 16) if isinstance(trace_id, str) else trace_id & (2 * _SIGN - 1)


def _possible(ratio: float) -> float:
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio={ratio!r}: must be from 0 to 1")
    return ratio
