"""`verify --json` in a process of its own: it reads everything, and writes to the process's output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Final

COMMAND: Final = (sys.executable, "-m", "inference_logging.cli.main", "verify", "--json")


def start(arguments: Iterable[str]) -> subprocess.Popen[str]:
    """Begin a verification with these arguments."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def answer(process: subprocess.Popen[str], longest_s: float | None = None) -> tuple[dict[str, Any], str]:
    """Wait for the end; return the report, and in words why there is none."""
    try:
        out, err = process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {}, f"verify did not end within {longest_s:g} s"
    try:
        return json.loads(out), ""
    except json.JSONDecodeError:
        return {}, err.strip() or f"verify ended with {process.returncode} and said nothing"
