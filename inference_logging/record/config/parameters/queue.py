"""From the servers to the listener: the queues, the listener, and changes at run time."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import (
    GIB,
    KIB,
    MIB,
    Bytes,
    OptionalPath,
    Parameters,
    RingBytes,
    matching,
    parameter,
)

_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class QueueParameters(Parameters):
    """The queue of each process: its place, its size, and what it refuses when it fills."""

    service_name: Annotated[str, matching(_SERVICE_NAME)] = parameter(
        "inference",
        "Name of the service, used in the names of segments and of the queue directory. Processes with the same name "
        "and user share one listener if their parameters for destination and redaction are equal.",
        allowed="1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
    )
    queue_directory: OptionalPath = parameter(
        None,
        "Directory for the queues, on tmpfs; created with mode 0700. Empty = "
        "/dev/shm/inference_logging-<uid>-<service_name>-<fingerprint>; without /dev/shm, the same below the temporary "
        "directory; if another user owns that, in XDG_RUNTIME_DIR or under a numbered name. The fingerprint covers the "
        "parameters for destination and redaction: processes that differ in them never share a directory. If a "
        "directory is configured here, the later one refuses to start.",
        allowed="a path, or empty",
    )
    queue_bytes: RingBytes = parameter(
        16 * MIB,
        "Size of one process's queue, rounded up to a power of two and allocated at start. If it does not fit, or "
        "exceeds a tenth of /dev/shm, a smaller size is used and reported on stderr; no room at all is an error at "
        "start. A full queue refuses records by level and counts them as queue_full.",
        unit="bytes",
        limits=(64 * KIB, 4 * GIB),
    )
    max_record_bytes: Bytes = parameter(
        64 * KIB,
        "Largest record in the queue's binary form; larger ones are refused and counted as oversize. At most a quarter "
        "of queue_bytes, and enough for a request record with all its captures.",
        unit="bytes",
        limits=(4 * KIB, 16 * MIB),
    )
    overflow_info_ratio: float = parameter(
        0.8,
        "How full the queue may get before DEBUG and INFO are refused and counted, to leave room for WARN and above; 1 "
        "= no room is reserved.",
        unit="share of queue_bytes",
        limits=(0.1, 1.0),
        advanced=True,
    )


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
