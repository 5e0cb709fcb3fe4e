"""A part of the benchmark runs in a process of its own, with directories that are removed after it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

Answer = dict[str, Any]
_OTHERS_VARIABLES: Final = ("INFERENCE_LOGGING_", "FAPILOG_", "LOGURU_", "OTEL_", "UVICORN_")


def child(module: str, order: str, answer: Path, limit_s: float, *options: str) -> Answer:
    """Run a module as a child that gets ``order`` and writes ``answer``; a child that ends otherwise is a problem."""
    command = [sys.executable, "-m", module, *options]
    with tempfile.TemporaryFile() as said:
        try:
            ended = subprocess.run(
                command,
                input=order.encode(),
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=_environment(),
                cwd=answer.parent,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"not done within {limit_s:g} s"}
        with suppress(OSError, ValueError):
            return cast("Answer", json.loads(answer.read_text(encoding="utf-8")))
        said.seek(0)
        last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
    return {"problem": f"the process ended with {ended.returncode}: {last}"}


def memory_directory() -> Path | None:
    """Return where tmpfs is mounted, if it is."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


@contextmanager
def scratch_directory(below: Path | None = None) -> Iterator[Path]:
    """Make a directory (in the temporary directory, or ``below``) and remove it with all it holds."""
    path = Path(tempfile.mkdtemp(prefix="inference_logging-bench-", dir=below))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def places() -> Iterator[tuple[Path, Path]]:
    """Make a directory for files and one in memory, and remove both with all that a child has left there."""
    with scratch_directory() as place, scratch_directory(memory_directory()) as memory:
        yield place, memory


def _environment() -> dict[str, str]:
    """Return the environment of a child: without other settings of the peers, and with this package on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS_VARIABLES)}
    package = str(Path(__file__).parents[3])
    kept["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept
