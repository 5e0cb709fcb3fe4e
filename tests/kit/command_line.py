"""Run `inference-logging` within the test's process, or another program as it would be run there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from inference_logging import Config
from inference_logging.cli.main import run as run_command_line


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> Done:
    """Run a command line; neither stream is a terminal."""
    with _file(1) as out, _file(2) as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command_line(arguments)
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


@contextlib.contextmanager
def _file(descriptor: int) -> Iterator[TextIO]:
    """Put a file in the place of a stream, also for what is not Python."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
        before = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        try:
            # Where the file is open for appending, neither writes over what the other has written.
            fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
            file.reconfigure(write_through=True)
            yield file
        finally:
            os.dup2(before, descriptor)
            os.close(before)


def run_program(program: Path, *arguments: str) -> Done:
    """Run a program with its command line."""
    done = subprocess.run([program, *arguments], capture_output=True, check=False, timeout=180)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def ctl(config: Config, *arguments: str) -> Done:
    """Run the command for the queue directory of ``config``."""
    return run("ctl", "--queue-directory", str(config.resolved_queue_directory), *arguments)


def control(config: Config, *arguments: str) -> str:
    """Change something and return what is said."""
    done = ctl(config, *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out
