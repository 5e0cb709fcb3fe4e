"""Processes of the command line that run until they are asked to end: `inference-logging listen`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from inference_logging import Config
from tests.kit.books import variables
from tests.kit.support import wait_until

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
