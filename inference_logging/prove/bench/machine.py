"""The machine and this process, as Linux describes them under /proc."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Final

from inference_logging.prove.bench.result import Machine

_NATIVE_THREADS: Final = "inference-"
"""How the names of this package's native threads begin."""
_PROCESS: Final = Path("/proc/self")


def machine() -> Machine:
    """Return what is known about this machine, its load averages over 1, 5 and 15 minutes among it."""
    return {
        "cpu": _after("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int((_after("/proc/meminfo", "MemTotal") or "0").split()[0]) / (1 << 20), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "files_on": file_system(Path(tempfile.gettempdir())),
    }


def file_system(path: Path) -> str:
    """Return the type of the file system of ``path``, where its mounts can be read; else an empty text."""
    found, best = "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, point, kind, *_ = line.split(" ")
            if path.resolve().is_relative_to(point) and len(point) > best:
                found, best = kind, len(point)
    return found


def memory_bytes(figure: str, process: str = "self") -> int:
    """Return a figure of a process's memory as the kernel names it: `VmRSS` is what is resident, `VmHWM` its peak."""
    return int((_after(f"/proc/{process}/status", figure) or "0").split()[0]) * 1024


def forget_peak() -> bool:
    """Let the peak of this process's memory begin at its present size; return whether the kernel does that."""
    try:
        (_PROCESS / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def interpreter_cpu_ns() -> int:
    """Return the CPU time of this process without this package's native threads."""
    return time.process_time_ns() - _native_cpu_ns()


def _native_cpu_ns() -> int:
    spent = 0
    for task in (_PROCESS / "task").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if (task / "comm").read_text(encoding="utf-8").startswith(_NATIVE_THREADS):
                spent += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return spent


def _after(path: str, name: str) -> str | None:
    """Return what stands behind the first ``name:`` of a file."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return None
