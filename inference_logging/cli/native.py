"""The commands that are native: `listen`, `recover`, `verify` and `ctl`.

Python reads the command line and the configuration, and passes both on.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from inference_logging.record.config import Config

PROGRAM: Final = "inference-logging-listener"
DISTRIBUTION: Final = "inferlog-listener"
"""The distribution that has the program."""


def run(arguments: Sequence[str], config: Config) -> int:
    """Run a command with this configuration in this process, and return its exit code."""
    from inference_logging._native import run_listener
    from inference_logging.record.service import database_writer

    return run_listener(arguments, as_json(config), partial(database_writer, config), _blocks_of_lines)


def become(arguments: Sequence[str], config: Config) -> None:
    """Continue as the program that is installed beside this package; return if there is none, or it can't run.

    The program takes a tenth of the memory of an interpreter.
    """
    program = _program()
    if program is None:
        return
    file = os.memfd_create("configuration", 0)  # the program inherits it
    os.write(file, as_json(config, version=1))
    command, *options = arguments
    with contextlib.suppress(OSError):
        os.execve(program, [PROGRAM, command, "--config", f"/proc/self/fd/{file}", *options], _environment())
    os.close(file)


def options(**values: Any) -> list[str]:
    """Return options in the form of a command line: each that has a value or values, and the flags that are set."""
    given: list[str] = []
    for name, value in values.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        several = value if isinstance(value, list | tuple) else [value]
        given += [
            option if one is True else f"{option}={one}" for one in several if one is not None and one is not False
        ]
    return given


def as_json(config: Config, **more: Any) -> bytes:
    """Return the configured parameters without the defaults: `recover` distinguishes the two."""
    return json.dumps(config.model_dump(mode="json", exclude_unset=True, exclude={"config_file"}) | more).encode()


def _environment() -> dict[str, str]:
    """Return the environment without our variables, which would take precedence over the file."""
    from inference_logging.record.config.config import ENV_PREFIX

    return {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}


def _program() -> Path | None:
    from importlib import metadata  # only where a program may be started

    try:
        files = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((Path(file.locate()) for file in files if file.name == PROGRAM), None)


def _blocks_of_lines(path: Path) -> Iterable[bytes]:
    from inference_logging.record.audit_sqlite import blocks_of_lines  # sqlite3 only where there is a database

    return blocks_of_lines(path)
