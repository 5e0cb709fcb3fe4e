"""Processes of the simulated fleet, and the CPU time that they use."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from loadtests.harness import cpu_s


class Child:
    """A process whose CPU time is known exactly once it has ended."""

    def __init__(self, *command: str | Path, said: Path) -> None:
        """Start it in a group of its own."""
        with said.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, start_new_session=True,
            )  # fmt: skip
        self.cpu_s, self._said, self._name = 0.0, said, " ".join(map(str, command[1:4]))
        self.begun_s = time.time()
        self.start_cpu_s: float | None = None

    def say(self, text: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return line.strip()

    def read_all(self) -> str:
        """Return all that it prints until its end."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def note_start(self) -> None:
        """Keep what it has used so far as what its start takes."""
        if self.start_cpu_s is None and self._process.returncode is None:
            self.start_cpu_s = cpu_s(self._process.pid)

    @property
    def work_cpu_s(self) -> float:
        """What it has used after its start, once it has ended."""
        return 0.0 if self.start_cpu_s is None else self.cpu_s - self.start_cpu_s

    def kill(self) -> None:
        """End it and its children by SIGKILL, if it has not ended."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self.wait()

    def stop(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def wait(self) -> int:
        """Return its exit code."""
        _, status, used = os.wait4(self._process.pid, 0)
        self.cpu_s = used.ru_utime + used.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return self._process.returncode

    def wait_well(self) -> None:
        """Raise ``RuntimeError`` if it fails."""
        if self.wait():
            raise self._failure()

    def _failure(self) -> RuntimeError:
        return RuntimeError(f"{self._name} ended: {self._said.read_text(encoding='utf-8')[-1000:]}")
