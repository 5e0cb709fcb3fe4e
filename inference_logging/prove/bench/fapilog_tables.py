"""What fapilog's own method found, as tables of the page: its figures and ours, the bursts, the ratios."""

from __future__ import annotations

from typing import Final, Literal

from inference_logging.prove.bench.figures import Text, bytes_text, estimate_text, ratio_text, time_text
from inference_logging.prove.bench.result import FapilogResult
from inference_logging.read.pages.content import Table
from inference_logging.read.stats.summary import short_count

_Figure = Literal[
    "calls_per_s",
    "end_to_end_per_s",
    "latency_mean_ns",
    "latency_median_ns",
    "latency_p95_ns",
    "slow_sink_mean_ns",
    "slow_sink_median_ns",
    "slow_sink_p95_ns",
    "peak_bytes",
]
_Ratio = Literal["throughput_ratio", "end_to_end_ratio", "latency_ratio", "slow_sink_ratio", "peak_bytes_ratio"]
_FORMS: Final[dict[_Figure, tuple[str, Text]]] = {
    "calls_per_s": ("calls per second", short_count),
    "end_to_end_per_s": ("records per second until the last arrived", short_count),
    "latency_mean_ns": ("latency, mean", time_text),
    "latency_median_ns": ("latency, median", time_text),
    "latency_p95_ns": ("latency, p95", time_text),
    "slow_sink_mean_ns": ("a call into the slow sink, mean", time_text),
    "slow_sink_median_ns": ("a call into the slow sink, median", time_text),
    "slow_sink_p95_ns": ("a call into the slow sink, p95", time_text),
    "peak_bytes": ("peak memory", bytes_text),
}
_BURST_HEADS: Final[dict[Literal["submitted", "arrived", "refused", "unexplained"], str]] = {
    "submitted": "calls",
    "arrived": "arrived",
    "refused": "refused, or counted as dropped",
    "unexplained": "neither",
}
_RATIO_HEADS: Final[
    dict[Literal["throughput_ratio", "end_to_end_ratio", "latency_ratio", "slow_sink_ratio", "peak_bytes_ratio"], str]
] = {
    "throughput_ratio": "calls per second",
    "end_to_end_ratio": "records per second until the last arrived",
    "latency_ratio": "mean latency",
    "slow_sink_ratio": "mean call into the slow sink",
    "peak_bytes_ratio": "peak memory",
}


def fapilog_tables(found: FapilogResult) -> list[Table]:
    """Return the tables."""
    contenders = found["contenders"]
    units = [
        (head, *(estimate_text(unit[name], form) for unit in contenders.values()))
        for name, (head, form) in _FORMS.items()
    ]
    bursts = [
        (f"burst: {head}", *(f"{burst[name]:,}" for burst in found["bursts"].values()))
        for name, head in _BURST_HEADS.items()
    ]
    ratios = [(head, estimate_text(found[name], ratio_text)) for name, head in _RATIO_HEADS.items()]
    heads = ("", *(f"{name} {found['version']}" if name == "fapilog" else name for name in contenders))
    return [Table("", heads, [*units, *bursts]), Table("", ("ours ÷ fapilog", "ratio"), ratios)]
