"""The processes of a queue directory, seen from outside, and the CPU time that they have used.

A process id in a queue file may belong to another process namespace, where it names nothing or a stranger here. So a
process counts only if it has the servers' run-time page mapped.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from inference_logging._native import queues_of

_CPU_CLOCK: Final = 2
"""The kind of a process's clock that counts the CPU time of all its threads, also of those that have ended."""


class Processes:
    """The servers and listeners of a queue directory."""

    def __init__(self, queue_directory: Path) -> None:
        """Look for them; ``find`` looks again."""
        self._directory = queue_directory
        self.servers: set[int] = set()
        self.listeners: set[int] = set()
        """Those that only listen."""
        self.unseen: set[int] = set()
        """Those that cannot be seen from here, or run another version."""
        self.find()

    def find(self) -> None:
        """Find the processes that have come since."""
        known = self.servers | self.listeners | self.unseen | {os.getpid()}
        queues = [queue for queue in queues_of(self._directory) if queue["producer"] == "elsewhere"]
        new = {queue["pid"]: queue["only_listens"] for queue in queues if queue["pid"] not in known}
        pages = {str(page.stat().st_ino) for page in self._directory.glob("runtime-*")} if new else set()
        for pid, only_listens in new.items():
            if not _maps(pid, pages):
                self.unseen.add(pid)
            elif only_listens:
                self.listeners.add(pid)
            else:
                self.servers.add(pid)

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU time of each process that is seen and still lives, in seconds."""
        found = {}
        for pid in self.servers | self.listeners:
            with contextlib.suppress(OSError):  # it has ended
                found[pid] = time.clock_gettime(~pid << 3 | _CPU_CLOCK)
        return found


def _maps(pid: int, inodes: set[str]) -> bool:
    """Return whether a process has one of these files mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split(None, 5)[4] in inodes for line in lines)
