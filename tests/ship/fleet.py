"""Hosts of a fleet: each has a directory that servers write to, and a shipper that is killed again and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.ship.bucket import CREDENTIALS

PAYLOAD_BYTES: Final = 3000
"""Of noise in each record, so that objects are not small and have several parts."""

_WRITER: Final = """
import base64, os, sys, time
from inference_logging import Logger, get_logger
count, host = int(sys.argv[1]), sys.argv[2]
with Logger() as logger:
    for number in range(count):
        noise = base64.b64encode(os.urandom({bytes})).decode()
        while not get_logger("fleet").info("n", n=number, host=host, noise=noise):
            time.sleep(0.01)
    assert logger.flush()
"""


class Row(NamedTuple):
    """What became of a host's records."""

    host: str
    accepted: int
    arrived: int
    copies: int
    missing: int
    kills: int
    in_parts: int
    """Kills while an upload in parts was under way."""


class Host:
    """One directory with its writers and its shipper; ``url`` is where that goes, ``more`` are its parameters."""

    def __init__(self, name: str, folder: Path, url: str, *, rotate_bytes: int, **more: Any) -> None:
        self.name, self.directory = name, folder / name / "logs"
        self.kills = 0
        """Of its shippers."""
        self.killed_in: set[str] = set()
        """Uploads in parts that were under way then."""
        self.rotate_bytes = rotate_bytes
        self._url, self._folder = url, folder / name
        self._kind = url.partition("://")[0].partition("+")[0]
        self._folder.mkdir(parents=True)
        given = {
            "directory": self.directory,
            "queue_directory": self._folder / "queues",
            "service_name": "fleet",
            "rotate_bytes": rotate_bytes,
            "retention_waits_for": self._kind,
            "retention_s": 1,
            "ship_interval_s": 0.05,
            "ship_timeout_s": 5,
            "ship_retry_s": 1,
            "drain_deadline_s": 100,
            **more,
        }
        own = {f"INFERENCE_LOGGING_{key.upper()}": str(value) for key, value in given.items()}
        self._environment = {**os.environ, **CREDENTIALS, "OTEL_RESOURCE_ATTRIBUTES": f"k8s.pod.name={name}", **own}
        self._shipper: subprocess.Popen[bytes] | None = None

    def write(self, count: int) -> subprocess.Popen[bytes]:
        """Start a process that writes so many records."""
        script = _WRITER.replace("{bytes}", str(PAYLOAD_BYTES))
        return subprocess.Popen([sys.executable, "-c", script, str(count), self.name], env=self._environment)

    def start(self) -> None:
        """Start the shipper."""
        command = [sys.executable, "-m", "inference_logging.cli.main", "ship", "--to", self._url]
        with (self._folder / "said").open("ab") as said:
            self._shipper = subprocess.Popen(command, env=self._environment, stderr=said)

    def kill(self) -> None:
        """Kill it by SIGKILL, and start the next one."""
        assert self._shipper is not None
        assert self._shipper.poll() is None, (self._folder / "said").read_text()
        self.kills += 1
        self.end()
        self.start()

    def is_sending(self) -> bool:
        """Return whether an object is being made or sent."""
        return (self.directory / ".s3.staging" / "object").exists()

    def left(self) -> int:
        """Return how many segments have not arrived."""
        names = {path.name.removesuffix(".zst") for path in self.directory.glob("fleet-*.jsonl*")}
        suffix = f".shipped-{self._kind}"
        marks = {name for name in names if name.endswith(suffix)}
        return len((names - marks) - {mark.removesuffix(suffix) for mark in marks})

    def has_arrived(self) -> bool:
        """Return whether each segment has arrived."""
        return self.left() == 0

    def stop(self) -> int:
        """Let the shipper send what is left, and return its exit code."""
        assert self._shipper is not None
        self._shipper.terminate()
        return self._shipper.wait(120)

    def said(self) -> str:
        """Return what its shippers have said."""
        return (self._folder / "said").read_text()

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._shipper is not None:
            self._shipper.kill()
            self._shipper.wait()


def table(rows: list[Row]) -> str:
    """Return what arrived, as a table with a line of sums."""
    sums = Row("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))
    lines = [Row._fields, *rows, sums]
    return "\n".join("  ".join(f"{cell!s:>9}" for cell in line) for line in lines)
