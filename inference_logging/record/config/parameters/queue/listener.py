"""The listener: which process runs it, when it writes, how long it may take at the end."""

from __future__ import annotations

from typing import Literal

from inference_logging.record.config.fields import KIB, MIB, Bytes, Parameters, parameter


class ListenerParameters(Parameters):
    """The listener: which process runs it, when it writes, how long it may take at the end."""

    listener: Literal["thread", "external"] = parameter(
        "thread",
        "thread: a native thread of this process can become the queue directory's listener; external: this process "
        "only produces, and another one listens, usually `inference-logging listen`. Without a listener the queue "
        "fills and overflows, which health reports.",
    )
    flush_interval_s: float = parameter(
        0.5,
        "Longest time an accepted record waits in the queue to be written, unless flush_records or flush_bytes is "
        "reached earlier.",
        unit="s",
        limits=(0.01, 60.0),
    )
    flush_records: int = parameter(
        100,
        "Number of waiting records at which the listener writes before flush_interval_s; it checks every 250 ms, so "
        "that no request makes a system call to wake it.",
        unit="records",
        limits=(1, 1_000_000),
        advanced=True,
    )
    flush_bytes: Bytes = parameter(
        1 * MIB,
        "Number of waiting bytes at which the listener is woken before flush_interval_s.",
        unit="bytes",
        limits=(4 * KIB, 64 * MIB),
        advanced=True,
    )
    drain_deadline_s: float = parameter(
        5.0,
        "Longest time a shutdown waits for the queue to be written; records left after that are counted as "
        "shutdown_deadline. 0 = one attempt without waiting.",
        unit="s",
        limits=(0.0, 600.0),
    )
