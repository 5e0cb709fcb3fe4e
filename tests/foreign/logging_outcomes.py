"""Run CPython's own tests of ``logging``, with our class of loggers installed or not; print the outcomes as JSON.

A process of its own runs it: ``python logging_outcomes.py yes|no DIRECTORY [TEST ...]``. With ``yes`` the class is
installed before the tests are imported, and a logger of ours is open. The handler is taken away again, since the tests
begin with a root logger without any.
"""

from __future__ import annotations

import json
import logging
import sys
import unittest
from pathlib import Path


def main() -> None:
    """Run the tests and print their outcomes."""
    wanted, directory, *names = sys.argv[1:]
    if wanted == "yes":
        _install(Path(directory))
    outcomes = Outcomes()
    loader = unittest.defaultTestLoader
    from test import test_logging  # type: ignore[import-not-found] # no part of every interpreter

    tests = loader.loadTestsFromNames(names) if names else loader.loadTestsFromModule(test_logging)
    tests.run(outcomes)
    kinds = {type(logging.getLogger()).__name__, logging.getLoggerClass().__name__}
    sys.stdout.write(f"{json.dumps({'outcomes': outcomes.by_name, 'classes': sorted(kinds)})}\n")


def _install(directory: Path) -> None:
    from inference_logging import Config, Logger, install_logger

    Logger(Config(directory=directory / "logs", queue_directory=directory / "queues"))
    install_logger()
    logging.getLogger().handlers.clear()


class Outcomes(unittest.TestResult):
    """The outcome of each test by its name; of one that fails, the last line of its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - the name of unittest
        super().addSuccess(test)
        self.by_name.setdefault(test.id(), "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.by_name[test.id()] = "skipped"

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addFailure(test, err)  # type: ignore[arg-type]
        self.by_name[test.id()] = f"failed: {self.failures[-1][1].strip().splitlines()[-1]}"

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addError(test, err)  # type: ignore[arg-type]
        self.by_name[test.id()] = f"failed: {self.errors[-1][1].strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
