"""Run CPython's own tests of ``logging``, with our class of loggers installed or not; print the outcomes as JSON.

A process of its own runs it: ``python logging_outcomes.py yes|no DIRECTORY [TEST ...]``. With ``yes`` the class is
installed before the tests are imported and before each of them, since some take it away, and a logger of ours is open.
The handler is taken away again, since the tests begin with a root logger without any.
"""

from __future__ import annotations

import json
import logging
import sys
import unittest
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the tests and print their outcomes."""
    wanted, directory, *names = sys.argv[1:]
    outcomes = Outcomes(is_installed=wanted == "yes")
    if outcomes.is_installed:
        from inference_logging import Config, Logger

        Logger(Config(directory=Path(directory) / "logs", queue_directory=Path(directory) / "queues"))
        _install()
    loader = unittest.defaultTestLoader
    from test import test_logging  # type: ignore[import-not-found] # no part of every interpreter

    tests = loader.loadTestsFromNames(names) if names else loader.loadTestsFromModule(test_logging)
    tests.run(outcomes)
    sys.stdout.write(f"{json.dumps({'outcomes': outcomes.by_name, 'classes': outcomes.classes})}\n")


def _install() -> None:
    from inference_logging import install_logger

    root = logging.getLogger()
    before = root.handlers[:]
    install_logger()
    root.handlers[:] = before


class Outcomes(unittest.TestResult):
    """The outcome of each test by its name; of one that fails, the last line of its traceback."""

    def __init__(self, *, is_installed: bool) -> None:
        super().__init__()
        self.is_installed = is_installed
        self.by_name: dict[str, str] = {}
        self.classes: list[str] = []

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - the name of unittest
        super().startTest(test)
        if self.is_installed:
            _install()
        classes = {type(logging.getLogger()).__name__, logging.getLoggerClass().__name__}
        self.classes = sorted({*self.classes, *classes})

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self.by_name.setdefault(test.id(), "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.by_name[test.id()] = "skipped"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.by_name[test.id()] = f"failed: {self.failures[-1][1].strip().splitlines()[-1]}"

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.by_name[test.id()] = f"failed: {self.errors[-1][1].strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
