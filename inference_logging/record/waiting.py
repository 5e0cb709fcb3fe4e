"""When application records open a logger, and when they wait for one in memory.

The first record of a process often comes at import, before the application has said where records go and what is
replaced in them. Opening a logger by the environment alone would write it somewhere else, unredacted. So it waits for
the first logger that is opened, as long as there is a chance that one is: until the end of the process, or until a
record comes after ``PATIENCE_S`` while no module is being imported.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from inference_logging._native import forget_inherited_records, leave_waiting_records_to_parent, waiting_records
from inference_logging.errors import InferenceLoggingError

if TYPE_CHECKING:
    from inference_logging.record.config import Config

PATIENCE_S: Final = 60.0
_SAYING_WHERE: Final = (
    *("config_file", "enabled", "directory", "sink", "fallback", "additional_sinks", "audit"),
    *("redact_fields", "redact_patterns", "redact_custom", "redact_replacement"),
)
"""Parameters of which each, in the environment, says enough: then the environment is the configuration."""


class Waiting:
    """The known configuration of this process while no logger is open."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._last: Config | None = None

    def note(self, config: Config) -> None:
        """Remember the configuration of the logger that was opened last: the next one has the same."""
        self._last = config
        self._since_s = None

    def configuration(self, write: Callable[[Config], object]) -> Config | None:
        """Return the configuration that the latest record should open; None: it waits.

        ``write`` opens a logger, which writes what waits, and closes it; it is called when the interpreter exits.

        Raises ``ConfigError`` for a wrong value in the environment.
        """
        if self._last is None and any(f"INFERENCE_LOGGING_{name.upper()}" in os.environ for name in _SAYING_WHERE):
            return _of_the_environment()
        if self._since_s is None:
            self._since_s = time.monotonic()
            atexit.unregister(self._write)
            atexit.register(self._write, write)
        if time.monotonic() - self._since_s < PATIENCE_S or _is_importing():
            return None
        return self._wanted()

    def after_fork_in_child(self) -> None:
        """Leave the waiting records to the parent, unless this process opens a logger first."""
        leave_waiting_records_to_parent()

    def _wanted(self) -> Config:
        return self._last if self._last is not None else _of_the_environment()

    def _write(self, write: Callable[[Config], object]) -> None:
        """Write the records that still wait when the interpreter exits."""
        forget_inherited_records()
        if waiting := waiting_records():
            # A function that is registered while they run is not called any more.
            try:
                write(self._wanted())
            except InferenceLoggingError as error:
                if sys.stderr is not None:
                    lost = f"{waiting} records of the application are lost"
                    sys.stderr.write(f"inference_logging: {lost}: {error}\n")


def _of_the_environment() -> Config:
    from inference_logging.record.config import Config  # only where a configuration is read: pydantic takes its time

    return Config()


def _is_importing() -> bool:
    """Return whether the record was made while a module other than the program itself runs for the first time."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
    return False


WAITING: Final = Waiting()
"""This process's."""
