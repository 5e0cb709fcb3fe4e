"""Run `inference-logging` within the test's process, or another program as it would be run there."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from typing import NamedTuple

from inference_logging.cli.main import run as run_command_line


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> Done:
    """Run a command line; neither stream is a terminal."""
    with _text() as out, _text() as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command_line(arguments)
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


def _text() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def run_program(program: Path, *arguments: str) -> Done:
    """Run a program with its command line."""
    done = subprocess.run([program, *arguments], capture_output=True, check=False, timeout=60)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
