"""The native logger beside other handlers, filters, classes and changed methods: whatever has a part in it is asked."""

from __future__ import annotations

import logging
import logging.config
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from inference_logging import Handler, install_logger
from inference_logging.record.integrations.native_logger import NativeLogger, NativeRootLogger
from tests.kit.support import Recorded
from tests.record.native_loggers import assert_native, assert_not_native, log, messages, root, warm

__all__ = ["log", "root"]  # fixtures


@pytest.fixture
def installed() -> Iterator[None]:
    """Install the class meanwhile."""
    undo = install_logger()
    yield
    undo()


def test_other_handlers_get_their_record(
    recorded: Recorded, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    other: list[logging.LogRecord] = []
    seeing = logging.Handler()
    seeing.emit = other.append  # type: ignore[method-assign, assignment]
    warm(log)
    log.addHandler(seeing)
    assert_not_native(lambda: log.info("both"))
    seeing.setLevel(logging.ERROR)
    assert_native(lambda: log.info("ours alone"))
    log.removeHandler(seeing)
    log.addHandler(logging.NullHandler())
    assert_native(lambda: log.info("beside one that does nothing"))
    log.addHandler(caplog.handler)
    log.info("captured %s", "too")
    assert [record.getMessage() for record in other] == ["both"]
    assert caplog.messages == ["captured too"]
    assert messages(recorded) == ["both", "ours alone", "beside one that does nothing", "captured too"]


def test_two_of_our_handlers_make_two_records(recorded: Recorded, log: logging.Logger) -> None:
    log.addHandler(Handler())
    warm(log)
    log.info("twice")
    log.propagate = False
    assert_native(lambda: log.info("once"))
    log.handlers.clear()
    log.info("nowhere")
    assert messages(recorded) == ["twice", "twice", "once"]


def test_filters_and_levels_of_handlers_decide(recorded: Recorded, root: logging.Logger, log: logging.Logger) -> None:
    (ours,) = root.handlers
    warm(log)
    log.addFilter(lambda record: "secret" not in record.getMessage())
    log.info("secret")
    log.info("public")
    log.filters.clear()
    ours.addFilter(lambda record: "hidden" not in record.getMessage())
    log.info("hidden")
    log.info("shown")
    ours.filters.clear()
    ours.setLevel(logging.ERROR)
    log.info("below the handler's level")
    ours.setLevel(logging.NOTSET)
    assert_native(lambda: log.info("at last"))
    assert messages(recorded) == ["public", "shown", "at last"]


PATCHED = [
    *((logging.Logger, name) for name in ("_log", "callHandlers", "findCaller", "handle", "info", "filter")),
    *[(logging.Logger, "isEnabledFor"), (logging.Logger, "makeRecord"), (logging.Filterer, "filter")],
    *[(logging.LogRecord, "getMessage"), (logging.LogRecord, "__init__"), (logging.Handler, "filter")],
    *[(Handler, "handle"), (Handler, "emit"), (Handler, "filter")],
    *[(NativeLogger, "makeRecord"), (NativeLogger, "isEnabledFor")],
]


@contextmanager
def noting(owner: Any, name: str) -> Iterator[list[str]]:
    """Replace a method by one that notes its calls."""
    original, called = getattr(owner, name), list[str]()

    def replacement(*arguments: Any, **named: Any) -> Any:
        called.append(name)
        return original(*arguments, **named)

    with mock.patch.object(owner, name, replacement):
        yield called


@pytest.mark.parametrize(
    ("owner", "name"), PATCHED, ids=[f"{owner.__module__}.{owner.__name__}.{name}" for owner, name in PATCHED]
)
def test_a_replaced_method_is_called(recorded: Recorded, log: logging.Logger, owner: type, name: str) -> None:
    warm(log)
    assert_native(lambda: log.info("before"))
    with noting(owner, name) as called:
        log.info("meanwhile")
    assert called
    called.clear()
    assert_native(lambda: log.info("after"))
    assert not called
    assert messages(recorded) == ["before", "meanwhile", "after"]


@pytest.mark.parametrize(
    "name", ["_log", "callHandlers", "findCaller", "handle", "isEnabledFor", "makeRecord", "filter"]
)
def test_a_method_of_the_logger_alone_is_called(recorded: Recorded, log: logging.Logger, name: str) -> None:
    warm(log)
    with noting(log, name) as called:
        log.info("meanwhile")
    assert called == [name]
    log.info_once = log.info  # type: ignore[attr-defined] # as some libraries add theirs
    assert_native(lambda: log.info_once("after"))  # type: ignore[attr-defined]
    del log.info_once  # type: ignore[attr-defined]


def test_another_class_of_records_is_used(recorded: Recorded, log: logging.Logger) -> None:
    class Numbered(logging.LogRecord):
        def getMessage(self) -> str:  # noqa: N802 - the name of logging.LogRecord
            return f"numbered {super().getMessage()}"

    warm(log)
    logging.setLogRecordFactory(Numbered)
    try:
        log.info("record")
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    with mock.patch.object(logging, "_srcfile", None):
        log.info("without a place")
    assert_native(lambda: log.info("as always"))
    records = recorded.records("log")
    assert [record["message"] for record in records] == ["numbered record", "without a place", "as always"]
    assert "attributes" not in records[1]


def test_a_subclass_of_ones_own_decides_for_itself(recorded: Recorded) -> None:
    class Prefixing(NativeLogger):
        def makeRecord(self, *arguments: Any, **named: Any) -> logging.LogRecord:  # noqa: N802 - as in logging.Logger
            record: logging.LogRecord = super().makeRecord(*arguments, **named)
            record.msg = f"prefixed {record.msg}"
            return record

    class Mixed(Prefixing, logging.Logger):
        def info(self, msg: object, *args: object, **named: Any) -> None:
            super().info(f"mixed {msg}", *args, **named)

    logger = Mixed("mixed", logging.INFO)
    logger.addHandler(Handler())
    logger.info("%s", "x")
    logger.warning("%s", "y")
    below = NativeLogger("mixed.below", logging.INFO)
    below.parent = logger
    below.info("passed on")
    assert messages(recorded) == ["prefixed mixed x", "prefixed y", "passed on"]


def test_the_last_resort_writes_where_nothing_else_would(
    recorded: Recorded, root: logging.Logger, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers.clear()
    with mock.patch.object(logging, "lastResort", logging.StreamHandler(sys.stderr)):
        log.warning("alone")
    assert capsys.readouterr().err == "alone\n"
    assert messages(recorded) == []


def test_a_configuration_dictionary_configures_native_loggers(recorded: Recorded, installed: None) -> None:
    handlers = {"ours": {"class": "inference_logging.Handler", "level": "WARNING"}}
    loggers = {"native.configured": {"handlers": ["ours"], "level": "DEBUG", "propagate": False}}
    logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": False, "handlers": handlers, "loggers": loggers}
    )
    log = logging.getLogger("native.configured")
    warm(log)
    log.info("below the handler's level")
    assert_native(lambda: log.warning("at it"))
    log.handlers.clear()
    assert messages(recorded) == ["at it"]


def test_installing_changes_existing_and_later_loggers_and_can_be_taken_back(installed: None) -> None:
    root = logging.getLogger()
    assert (type(root), isinstance(root, logging.RootLogger)) == (NativeRootLogger, True)
    assert type(logging.getLogger("native.later")) is NativeLogger
    ours = [handler for handler in root.handlers if type(handler) is Handler]
    assert len(ours) == 1
    undo = install_logger()
    assert [handler for handler in root.handlers if type(handler) is Handler] == ours
    undo()
    assert (type(root), logging.getLoggerClass()) == (NativeRootLogger, NativeLogger)
    assert ours[0] in root.handlers


def test_a_class_of_the_applications_own_stays(installed: None) -> None:
    class Own(logging.Logger):
        pass

    logging.setLoggerClass(Own)
    try:
        own = logging.getLogger("native.own")
        install_logger()()
        assert (logging.getLoggerClass(), type(own)) == (Own, Own)
    finally:
        logging.setLoggerClass(NativeLogger)
        del logging.Logger.manager.loggerDict["native.own"]


def test_after_it_is_taken_back_everything_is_as_before() -> None:
    program = """
import logging
from inference_logging import install_logger
root, early = logging.getLogger(), logging.getLogger("early")
undo = install_logger()
late = logging.getLogger("late")
assert [type(logger).__name__ for logger in (root, early, late)] == ["NativeRootLogger", "NativeLogger", "NativeLogger"]
undo()
undo()
assert [type(logger).__name__ for logger in (root, early, late)] == ["RootLogger", "Logger", "Logger"]
assert (root.handlers, logging.getLoggerClass()) == ([], logging.Logger)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
