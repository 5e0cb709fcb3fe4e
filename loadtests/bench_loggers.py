"""The two loggers that the benchmark compares, with the same 10-field record: ours, and the standard library's.

Ours runs with its defaults (queue of 16 MiB, listener woken every 100 records) unless a section says otherwise. The
standard library's is the documented recipe, made as quick as it goes without leaving it: ``QueueHandler`` on an
unbounded ``queue.Queue``, ``QueueListener`` to a ``FileHandler``, lines encoded by orjson, and the fields handed over
as one ready dictionary instead of ten attributes.
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging import Config, Logger

Emit = Callable[..., object]

EVENT: Final = "bench.request"
FIELDS: Final = ("method", "path", "status", "duration_s", "model", "stream", "error", "tokens", "user", "cost")
VALUES: Final = ("POST", "/v1/chat/completions", 200, 0.0123, "llama-3.1-8b", True, None, 128, "user-7f3a9c", 0.5)

DRAIN_S = 120.0


@contextmanager
def scratch_directory(below: Path | None = None) -> Iterator[Path]:
    """Make a directory (in the temporary directory, or ``below``) and remove it with all it holds."""
    path = Path(tempfile.mkdtemp(prefix="inference_logging-bench-", dir=below))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def memory_directory() -> Path | None:
    """Return where tmpfs is mounted, if it is."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


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


@dataclass(frozen=True)
class Ours:
    """Our logger, open, with the event of the benchmark."""

    logger: Logger
    emit: Emit
    directory: Path

    def settle(self) -> None:
        """Wait until everything accepted is written."""
        if not self.logger.flush(DRAIN_S):
            raise RuntimeError(f"the listener did not write everything within {DRAIN_S} s: {self.logger.stats()}")

    def listener_cpu_s(self) -> float:
        """Return the CPU time that the listener thread has used so far."""
        return float(self.logger.stats()["listener"]["listener_cpu_s"])

    def check_books(self, called: int, refused: int = 0) -> int:
        """Return how many records arrived in the file; raise unless accepted is called − refused, and all arrived."""
        self.settle()
        arrived, books = count_records(self.directory), self.logger.stats()
        if not books["accepted"] == arrived == called - refused:
            raise RuntimeError(f"called {called}, refused {refused}, arrived {arrived}, but the books say {books}")
        return arrived


@contextmanager
def ours(directory: Path, **settings: Any) -> Iterator[Ours]:
    """Open our logger with segments in ``directory``."""
    with our_config(directory, **settings) as config, Logger(config) as logger:
        yield Ours(logger, logger.event(EVENT, FIELDS), directory)


class JsonLine(logging.Formatter):
    """Encode a record and its fields as one line of JSON with orjson."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = record.__dict__["fields"]
        line = {"timestamp": record.created, "severity_text": record.levelname, "event_name": record.msg, **fields}
        return orjson.dumps(line).decode()


@dataclass(frozen=True)
class Standard:
    """The standard library's QueueHandler and QueueListener, running."""

    emit: Emit
    records: queue.Queue[Any]
    directory: Path

    def settle(self) -> None:
        """Wait until the listener has written everything: it marks each record as done after the handler has run."""
        self.records.join()


@contextmanager
def standard(directory: Path) -> Iterator[Standard]:
    """Open the standard library's logger with its file in ``directory``."""
    directory.mkdir(exist_ok=True)
    file = logging.FileHandler(directory / "stdlib.jsonl")
    file.setFormatter(JsonLine())
    records: queue.Queue[Any] = queue.Queue(-1)
    logger, handler = logging.getLogger(EVENT), QueueHandler(records)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    listener = QueueListener(records, file)
    listener.start()
    try:
        yield Standard(_log_call(logger.info), records, directory)
    finally:
        listener.stop()
        logger.removeHandler(handler)
        file.close()


def _log_call(info: Emit) -> Emit:
    # A Python function around the call, so that all contenders are called alike; it costs what the empty call costs.
    def emit(
        method: str,
        path: str,
        status: int,
        duration_s: float,
        model: str,
        stream: bool,
        error: str | None,
        tokens: int,
        user: str,
        cost: float,
    ) -> bool:
        fields = {
            "method": method,
            "path": path,
            "status": status,
            "duration_s": duration_s,
            "model": model,
            "stream": stream,
            "error": error,
            "tokens": tokens,
            "user": user,
            "cost": cost,
        }
        info(EVENT, extra={"fields": fields})
        return True

    return emit


def emit_many(emit: Emit, count: int) -> None:
    """Call ``emit`` ``count`` times with the values of the record."""
    method, path, status, duration_s, model, stream, error, tokens, user, cost = VALUES
    for _ in range(count):
        emit(method, path, status, duration_s, model, stream, error, tokens, user, cost)


def emit_until_accepted(emit: Emit, count: int, wait_s: float = 50e-6) -> int:
    """Emit ``count`` records, each again after ``wait_s`` while it is refused; return the number of refusals."""
    method, path, status, duration_s, model, stream, error, tokens, user, cost = VALUES
    refused = 0
    for _ in range(count):
        while not emit(method, path, status, duration_s, model, stream, error, tokens, user, cost):
            refused += 1
            time.sleep(wait_s)
    return refused


def empty_call(
    _method: object,
    _path: object,
    _status: object,
    _duration_s: object,
    _model: object,
    _stream: object,
    _error: object,
    _tokens: object,
    _user: object,
    _cost: object,
) -> bool:
    """Do nothing: what a Python call with the record's values costs by itself."""
    return True


def count_records(directory: Path) -> int:
    """Count the benchmark's records in the files of ``directory``; not headers, footers or reports of gaps."""
    paths = [path for path in directory.iterdir() if not path.is_symlink()]
    return sum(path.read_bytes().count(EVENT.encode()) for path in paths)


def pin(cores: set[int]) -> None:
    """Bind the calling thread, and the threads it starts from now on, to ``cores``."""
    os.sched_setaffinity(0, cores)
