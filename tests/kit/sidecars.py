"""Listeners as processes of their own: that of one queue directory, and that of all pods of a machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inference_logging import Config, Logger, get_logger
from tests.kit.books import variables
from tests.kit.child import in_child
from tests.kit.support import read_records, wait_until

PYTHON = (sys.executable, "-m", "inference_logging.cli.main")
LISTEN = (*PYTHON, "listen")
_PATIENCE_S = 180.0


def environment(config: Config) -> dict[str, str]:
    """Return the environment that gives another process the same configuration."""
    return {**os.environ, **variables(config)}


class Sidecar:
    """One `inference-logging listen` with the configuration of its servers, until it is stopped."""

    def __init__(
        self, config: Config, *arguments: str, before: tuple[str, ...] = (), listen: tuple[str, ...] | None = None
    ) -> None:
        """Start it: ``listen`` of the program that the test is about, or of another one."""
        # What is given last counts.
        command = [*before, *(listen or LISTEN), "--status-interval-s", "0.1", *arguments]
        self.process = subprocess.Popen(command, env=environment(config), stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ()))
        self._reader.start()

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def wait_for(self, status: str) -> str:
        """Wait for a new status line in which the pattern ``status`` is found, and return it."""
        seen = len(self.lines)

        def found() -> str | None:
            assert self.process.poll() is None, f"the listener ended: {self.lines}"
            return next((line for line in self.lines[seen:] if re.search(status, line)), None)

        line = wait_until(found, f"a status line with {status!r}")
        assert isinstance(line, str)
        return line

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end and return the exit code; all its lines are there then."""
        code = self.process.wait(_PATIENCE_S)
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def kill(self) -> None:
        """End it at this instant, if it runs."""
        self.process.kill()
        self.ended()


def queue_files(config: Config) -> list[Path]:
    """Return the queues of the directory."""
    return sorted(config.resolved_queue_directory.glob("*.queue"))


def served_port(lines: list[str]) -> int | None:
    """Return the port that is reported."""
    found = [re.search(r"serves /metrics on port (\d+)", line) for line in lines]
    return next((int(match[1]) for match in found if match), None)


class Node:
    """Pods of one machine: a directory for each below one parent, and one listener for all."""

    def __init__(self, root: Path, program: Path) -> None:
        self.root, self.program = root, program
        self.queues, self.segments = root / "queues", root / "segments"
        self.queues.mkdir(mode=0o755)
        self.config = Config(directory=self.segments, listener="external", flush_interval_s=0.05)

    def configuration(self, pod: str, **parameters: Any) -> Config:
        """Return the configuration of a pod's processes, which know nothing of the others."""
        given = {"directory": self.segments, "queue_directory": self.queues / pod / "queues", "listener": "external"}
        return Config(**{**given, "queue_bytes": 1 << 18, "in_flight_slots": 64, **parameters})

    def pod(self, name: str) -> None:
        """Make a pod's directory, as the kubelet does: any user may write to it, and only this pod mounts it."""
        path = self.queues / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)

    def produce(self, pod: str, numbers: range, user: int | None = None, **parameters: Any) -> None:
        """Log numbers in a process of a pod, as this user, that is killed afterwards."""
        assert self.start(pod, numbers, user, **parameters) == signal.SIGKILL

    def start(self, pod: str, numbers: range, user: int | None = None, **parameters: Any) -> int:
        """Log numbers in a process of a pod, and return how it ended."""
        self.pod(pod)

        def child() -> None:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            Logger(self.configuration(pod, **parameters))
            log = get_logger("pod")
            for number in numbers:
                # What is not taken is logged again: a full queue is not what this is about.
                wait_until(partial(log.warning, "n", n=number), "room in the queue")
            os.kill(os.getpid(), signal.SIGKILL)

        return os.waitpid(in_child(child), 0)[1] & 0x7F

    def listen(self, *options: str, **parameters: Any) -> Sidecar:
        """Start the listener of all."""
        config = Config(**{**self.config.model_dump(exclude_unset=True), **parameters})
        pattern = f"{self.queues}/{{k8s.namespace.name}}/{{k8s.pod.name}}/queues"
        return Sidecar(config, "--each", pattern, *options, listen=(str(self.program), "listen"))

    def records(self, pod: str) -> list[dict[str, Any]]:
        """Return the records of a pod's segments."""
        return read_records(self.segments / pod, "log")

    def numbers(self, pod: str) -> list[int]:
        """Return the numbers that are written."""
        return sorted(record["attributes"]["n"] for record in self.records(pod))

    def wait_for(self, pod: str, numbers: Sequence[int]) -> None:
        """Wait until as many are written, and check that it is these."""
        wait_until(lambda: len(self.numbers(pod)) >= len(numbers), f"the records of {pod}")
        assert self.numbers(pod) == [*numbers]
