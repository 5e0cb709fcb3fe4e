"""Run `inference-logging` within the test's process."""

from __future__ import annotations

import contextlib
import io
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
