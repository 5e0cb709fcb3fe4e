"""Parsl's log configuration: the lines of all its Python processes become records.

Parsl sends the object to each process that it starts and calls ``initialize_logging`` there: in the submit process, the
interchange, each manager and each worker. All of one machine have one queue directory, so one of them is the listener
of all, and what a killed worker had logged is written.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_logging.record.application import _LEVELS_OF_NAMES
from inference_logging.record.integrations.native_logger import install_logger
from inference_logging.record.logger import Logger, _configured

if TYPE_CHECKING:
    from inference_logging.record.config import Config

SUBMIT: Final = "parsl"
"""The name by which Parsl calls the log of the submit process."""
LOGGERS: Final = ("parsl", "concurrent.futures")
"""Those whose level is set, as by Parsl itself: an exception in a callback of a future is logged by the second one."""


class ParslLogging:
    """Record what Parsl logs: ``parsl.Config(initialize_logging=ParslLogging(), ...)``.

    ``config`` is in effect in every process, whatever the environment there says; by default it is the submit
    process's. Its ``level`` applies to Parsl's lines in the submit process (Parsl's own files have DEBUG there),
    ``worker_level`` to all others; other loggers of these processes, those of tasks included, follow their own levels.
    A ``process.ended`` record names its process as Parsl names its log (``interchange``, ``manager``, ``worker_0``).

    Raises ImportError without Parsl of version 2026.7.6 or later, ValueError naming a wrong level.
    """

    def __init__(self, config: Config | None = None, *, worker_level: str = "INFO") -> None:
        from parsl.logconfigs.base import LogConfig

        if worker_level not in _LEVELS_OF_NAMES:
            raise ValueError(f"worker_level={worker_level!r}: must be one of {', '.join(_LEVELS_OF_NAMES)}")
        # A virtual subclass, so that this package is imported without Parsl.
        LogConfig.register(type(self))
        self.uuid = uuid.uuid4()
        """Parsl's name of this configuration: a process that gets it twice initializes it once."""
        self.config = _with_absolute_paths(config if config is not None else _configured())
        self.worker_level = worker_level

    def initialize_logging(self, *, log_dir: Path, log_name: str) -> Callable[[], None]:  # noqa: ARG002 - Parsl's signature
        """Send this process's lines to the queue; return a function that ends this."""
        logger = Logger.shared(self.config)
        logger.service.set_producer_name(log_name)
        level = self.config.level if log_name == SUBMIT else self.worker_level
        for name in LOGGERS:
            logging.getLogger(name).setLevel(_LEVELS_OF_NAMES[level])
        take_back = install_logger()

        def end() -> None:
            take_back()
            logger.release()

        return end


def _with_absolute_paths(config: Config) -> Config:
    """Return ``config`` with paths that mean the same in processes with another working directory."""
    paths = {name: value.absolute() for name, value in config if isinstance(value, Path)}
    return config.model_copy(update=paths)
