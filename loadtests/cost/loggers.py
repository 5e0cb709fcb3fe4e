"""Our logger as the benchmarks open it, with a 10-field record.

It runs with its defaults (queue of 16 MiB, listener woken every 100 records) unless a section says otherwise.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from inference_logging import Config, Logger
from loadtests.harness import memory_directory, scratch_directory

Emit = Callable[..., object]

EVENT: Final = "bench.request"
FIELDS: Final = ("method", "path", "status", "duration_s", "model", "stream", "error", "tokens", "user", "cost")
VALUES: Final = ("POST", "/v1/chat/completions", 200, 0.0123, "llama-3.1-8b", True, None, 128, "user-7f3a9c", 0.5)

DRAIN_S = 120.0


def fitting_queue_bytes(wanted: int) -> int:
    """Return ``wanted``, halved until the queue and what is written from it fit into a quarter of a small tmpfs."""
    free = shutil.disk_usage(memory_directory() or tempfile.gettempdir()).free
    while wanted > max(free // 4, 1 << 20):
        wanted //= 2
    return wanted


@contextmanager
def our_config(directory: Path, **settings: Any) -> Iterator[Config]:
    """Make a configuration with segments in ``directory`` and queues that no other process shares."""
    with scratch_directory(memory_directory()) as queues:
        yield Config(directory=directory, queue_directory=queues, **settings)


@contextmanager
def ours(directory: Path, **settings: Any) -> Iterator[Logger]:
    """Open our logger with segments in ``directory``."""
    with our_config(directory, **settings) as config, Logger(config) as logger:
        yield logger


def emit_many(emit: Emit, count: int) -> None:
    """Call ``emit`` ``count`` times with the values of the record."""
    method, path, status, duration_s, model, stream, error, tokens, user, cost = VALUES
    for _ in range(count):
        emit(method, path, status, duration_s, model, stream, error, tokens, user, cost)


def emit_until_accepted(emit: Emit, count: int, wait_s: float = 50e-6) -> None:
    """Emit ``count`` records, each again after ``wait_s`` while it is refused."""
    for _ in range(count):
        while not emit(*VALUES):
            time.sleep(wait_s)


def empty_call(
    _method: object, _path: object, _status: object, _duration_s: object, _model: object, _stream: object,
    _error: object, _tokens: object, _user: object, _cost: object,
) -> bool:  # fmt: skip
    """Do nothing: what a Python call with the record's values costs by itself."""
    return True
