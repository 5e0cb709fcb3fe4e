"""What the tests of the native logger share: a tree of loggers, and the question whether a LogRecord was made."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import pytest

from inference_logging import Handler
from inference_logging.record.integrations.native_logger import NativeLogger, NativeRootLogger
from tests.kit.support import Recorded


@pytest.fixture
def root() -> logging.Logger:
    """Make the root of a tree of native loggers that pytest, whose handlers need records, does not know."""
    root = NativeRootLogger(logging.WARNING)
    root.manager = logging.Manager(root)
    root.manager.setLoggerClass(NativeLogger)
    root.addHandler(Handler())
    return root


@pytest.fixture
def log(root: logging.Logger) -> logging.Logger:
    """Make a native logger two below the root, which takes all levels."""
    root.manager.getLogger("native").setLevel(logging.NOTSET)
    logger = root.manager.getLogger("native.test")
    logger.setLevel(logging.DEBUG)
    return logger


@contextmanager
def log_records_made() -> Iterator[list[CodeType]]:
    """Count the LogRecords that are made, without a change of what the logger looks at."""
    code = logging.LogRecord.__init__.__code__
    made: list[CodeType] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code is code:
            made.append(code)

    sys.setprofile(profile)
    try:
        yield made
    finally:
        sys.setprofile(None)


def assert_native(call: Callable[[], object]) -> None:
    """Make a call, and check that it makes no LogRecord."""
    with log_records_made() as made:
        call()
    assert not made


def assert_not_native(call: Callable[[], object]) -> None:
    """Make a call, and check that it makes one LogRecord."""
    with log_records_made() as made:
        call()
    assert len(made) == 1


def messages(recorded: Recorded) -> list[str]:
    """Return the messages recorded so far."""
    return [record["message"] for record in recorded.records("log")]


def warm(logger: logging.Logger) -> None:
    """Let the logger decide about its levels, after which it knows."""
    for level in (5, 10, 20, 25, 30, 40, 50):
        logger.isEnabledFor(level)


class Speaking:
    """Becomes a text by code of its own."""

    def __str__(self) -> str:
        return "speaking"
