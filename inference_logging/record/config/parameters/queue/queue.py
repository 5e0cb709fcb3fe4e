"""The queue of each process: its place, its size, and what it refuses when it fills."""

from __future__ import annotations

import re
from typing import Annotated

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
