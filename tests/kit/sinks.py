"""What the tests of sinks share: numbered records, what the listener says about its sinks, and a small file system."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger
from tests.kit.support import parse, read_records, wait_until


class Numbered:
    """Emits the records 0, 1, 2, … through a logger."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        self._emit = logger.event("numbered", ["n"])
        self.count = 0

    def emit(self, count: int = 1) -> None:
        """Emit as many more; each must be accepted."""
        for _ in range(count):
            assert self._emit(self.count)
            self.count += 1


def sink(logger: Logger, position: int = 0) -> dict[str, Any]:
    """Return what the listener publishes about one sink; the primary is the first."""
    wait_until(lambda: len(logger.service.sinks()) > position, "a listener that leads")
    return logger.service.sinks()[position]


def wait_for_state(logger: Logger, state: str, position: int = 0) -> dict[str, Any]:
    """Wait until a sink is ok, failing or hung; return what is published about it then."""
    wait_until(lambda: sink(logger, position)["state"] == state, f"the sink to be {state}: {logger.service.sinks()}")
    return sink(logger, position)


def numbers(records: Iterable[dict[str, Any]]) -> list[int]:
    """Return the numbers of numbered records, in their order."""
    return [record["n"] for record in records if record["event_name"] == "numbered"]


def numbers_in(directory: Path) -> list[int]:
    """Return the numbers in all segments of a directory."""
    return numbers(read_records(directory))


def parse_whole(text: bytes) -> list[dict[str, Any]]:
    """Parse lines, the last of which must have its end."""
    assert text.endswith(b"\n") or not text
    return [parse(line) for line in text.splitlines()]


def reported(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the records about sinks."""
    return [record["event_name"] for record in records if record["event_name"].startswith("sink.")]


def errors(published: dict[str, Any]) -> set[str]:
    """Return the types of errors that were counted."""
    return {kind for kind, count in published["errors"].items() if count}


@contextlib.contextmanager
def small_file_system(place: Path, size: str = "256k") -> Iterator[Path]:
    """Mount a tmpfs of ``size`` at ``place``; skips the test where that is not allowed."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def freezable_file_system(place: Path) -> Iterator[Callable[[str], None]]:
    """Mount a file system that hangs after ``freeze("-f")`` until ``freeze("-u")``; skips where that is not allowed."""
    place.mkdir()
    image = place.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(16 << 20)

    def freeze(how: str) -> None:
        subprocess.run(["fsfreeze", how, str(place)], check=True, capture_output=True)

    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        freeze("-f")
        freeze("-u")
        yield freeze
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            freeze("-u")
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, how: str) -> None:
    """Change a mounted file system: ``ro`` or ``rw``."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True, capture_output=True)


def datagram(data: bytes) -> dict[str, Any]:
    """Parse a datagram, which holds one line without its end."""
    assert not data.endswith(b"\n")
    parsed = json.loads(data)
    assert isinstance(parsed, dict)
    return parsed


def fill(place: Path, logger: Logger | None = None) -> Path:
    """Take every block that is free; return the file that has them. The listener of ``logger`` frees none then."""
    if logger is not None:
        assert logger.flush(deadline_s=60)
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast
