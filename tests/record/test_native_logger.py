"""The native logger: a call leaves the record that our handler would make of it."""

from __future__ import annotations

import decimal
import enum
import itertools
import logging
import os
import pathlib
import sys
import threading
from collections import UserDict
from typing import Any, cast
from unittest import mock

import pytest

from inference_logging import Handler, get_logger
from inference_logging.record.integrations.native_logger import NativeLogger
from tests.kit.signatures import Recording
from tests.kit.support import Recorded
from tests.record.native_loggers import Speaking, assert_native, log, messages, root, warm

__all__ = ["log", "root"]  # fixtures

NOISE = {"timestamp", "seq", "sequence"}


class Silent:
    def __str__(self) -> str:
        raise LookupError("no text")


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return f"{super().__str__()}!"


class Colour(enum.IntEnum):
    RED = 3


MESSAGES = [
    "plain", "", "100%", "%", "%%", "%s", "%d", "%s of %d", "%5s|%-5s", "%r", "%(a)s", "%s %", "%.2f", "ä %s → %s %%",
    "\udc80 %s", "%s" * 40, "x" * 3000, "%x", 7, Speaking(), Silent(), Loud("loud %s"), None, b"bytes",
]  # fmt: skip
ARGUMENTS: list[tuple[object, ...]] = [
    (), (1,), ("a",), ("a", 2), (2, "a"), (None, True), (1.5,), (1.5, 2.5), ({},), ({"a": 1},), ({"a": 1}, 2),
    ([1, "b"],), (UserDict(a=4),), (UserDict(),), (Speaking(),), (Silent(),), ("\udc80", "ü"), (10**30,), (-5, 2**63),
    (Colour.RED,), ((),), ((1, 2),), (Loud("l"),), (pathlib.Path("/a"), decimal.Decimal("1.10")), ("y" * 600,),
    tuple(range(40)), (b"b",),
]  # fmt: skip
EXTRAS: list[object] = [
    None, {}, {"tokens": 7, "model": "llama"}, {"nested": {"a": [1, None]}, "self": 1, "": 2, "ü": Speaking()},
    {"code.line.number": 3}, {"levelnam": 1.5, "flag": True, "none": None, "big": 10**30}, {3: 4}, {Loud("key"): 1},
    {"\udc80": "\udc80"}, {"bytes": b"\xff", "when": pathlib.Path("/x")},
]  # fmt: skip


def test_every_call_leaves_the_record_that_the_handler_makes_of_it(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = recording(queue_bytes=64 << 20, level="DEBUG")
    cases = [*itertools.product(MESSAGES, ARGUMENTS, EXTRAS[:2])]
    cases += itertools.product(MESSAGES[:6], ARGUMENTS[:6], EXTRAS)
    errors: dict[type[logging.Logger], list[str]] = {NativeLogger: [], logging.Logger: []}
    for number, (message, arguments, extra) in enumerate(cases):
        for cls in (NativeLogger, logging.Logger):
            logger = cls(f"{cls.__name__}.{number}", logging.DEBUG)
            logger.addHandler(Handler())
            warm(logger)
            level = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)[number % 5]
            named = cast("dict[str, Any]", {} if extra is None and number % 2 else {"extra": extra})
            method = getattr(logger, logging.getLevelName(level).lower())
            try:
                method(message, *arguments, **named)
            except Exception as error:  # noqa: BLE001 - both must raise the same
                errors[cls].append(f"{number}: {error!r}")
    found: dict[str, dict[str, Any]] = {"NativeLogger": {}, "Logger": {}}
    for record in recorded.records("log"):
        name, _, number_text = record["logger"].partition(".")
        found[name][number_text] = {key: value for key, value in record.items() if key not in {"logger", *NOISE}}
    native, plain = found.values()
    assert native.keys() == plain.keys()
    for number_text, made in native.items():
        assert made == plain[number_text], cases[int(number_text)]
    assert errors[NativeLogger] == errors[logging.Logger]
    assert len(plain) > 300
    reported = capsys.readouterr().err.splitlines()
    assert len(reported) % 2 == 0
    assert reported[::2] == reported[1::2]


@pytest.mark.parametrize(
    ("message", "arguments", "extra"),
    [
        ("plain", (), None),
        ("%s took %d ms", ("load", 7), None),
        ("%5.1f", (1.5,), {"tokens": 7}),
        ("%(a)s", ({"a": 1},), None),
        ("%s", (Speaking(),), {"value": Speaking()}),
        ("%s", ([1],), None),
        (Speaking(), (), None),
    ],
)
def test_no_log_record_is_made_for_our_handler_alone(
    recorded: Recorded,
    log: logging.Logger,
    message: object,
    arguments: tuple[object, ...],
    extra: dict[str, object] | None,
) -> None:
    warm(log)
    assert_native(lambda: log.info(message, *arguments, extra=extra))
    assert_native(lambda: log.log(logging.ERROR, message, *arguments, extra=extra, exc_info=None, stacklevel=1))
    assert [record["severity_text"] for record in recorded.records("log")] == ["INFO", "ERROR"]


def test_the_place_is_that_of_the_call_through_the_library_itself_or_the_one_asked_for(
    recorded: Recorded, root: logging.Logger, log: logging.Logger
) -> None:
    adapter = logging.LoggerAdapter(log, {"tokens": 7})
    warm(log)
    assert_native(lambda: adapter.info("adapted"))
    root.setLevel(logging.INFO)
    warm(root)
    with mock.patch.object(logging, "root", root):
        assert_native(lambda: logging.info("by the module"))  # noqa: LOG015 - the case in question

    def below() -> None:
        log.info("of the caller", stacklevel=2)

    here = sys._getframe().f_lineno
    [log.info(text) for text in ("a", "b")]  # type: ignore[func-returns-value]
    log.info("c")
    below()
    records = recorded.records("log")
    assert [record["attributes"]["code.function.name"] for record in records[:2]] == ["<lambda>"] * 2
    assert records[0]["attributes"]["tokens"] == 7
    assert [record["attributes"]["code.line.number"] - here for record in records[2:]] == [1, 1, 2, 3]
    assert records[-1]["attributes"]["code.function.name"].startswith("test_the_place")
    assert {record["attributes"]["code.file.path"] for record in records} == {__file__}


def test_exceptions_and_stacks_are_recorded(recorded: Recorded, log: logging.Logger) -> None:
    try:
        raise LookupError("lost")
    except LookupError:
        log.exception("failed")
    log.info("stack", stack_info=True)
    failed, stack = (record["attributes"] for record in recorded.records("log"))
    assert failed["exception.type"] == "LookupError"
    assert failed["code.function.name"] == "test_exceptions_and_stacks_are_recorded"
    assert "stack_info=True" in stack["code.stacktrace"]


def test_levels_decide_as_always(recorded: Recorded, root: logging.Logger, log: logging.Logger) -> None:
    warm(log)
    log.setLevel(logging.WARNING)
    log.info("below")
    log.warning("at")
    with mock.patch.object(logging, "root", root):
        logging.disable(logging.WARNING)
        log.warning("disabled for all")
        log.error("above what is disabled")
        logging.disable(logging.NOTSET)
    log.disabled = True
    log.error("disabled")
    log.disabled = False
    log.setLevel(logging.NOTSET)
    root.manager.getLogger("native").setLevel(logging.ERROR)
    log.warning("below the parent's")
    root.manager.getLogger("native").setLevel(logging.NOTSET)
    root.setLevel(logging.WARNING)
    log.warning("inherited")
    assert messages(recorded) == ["at", "above what is disabled", "inherited"]


def test_levels_of_ones_own_keep_their_names(recorded: Recorded, log: logging.Logger) -> None:
    logging.addLevelName(25, "NOTICE")
    warm(log)
    assert_native(lambda: log.log(25, "notice"))
    log.log(26, "without a name")
    logging.addLevelName(logging.INFO, "Info")
    try:
        assert_native(lambda: log.info("renamed"))
    finally:
        logging.addLevelName(logging.INFO, "INFO")
    names = [record["attributes"].get("levelname") for record in recorded.records("log")]
    assert names == ["NOTICE", "Level 26", "Info"]


def test_wrong_calls_raise_what_they_always_raise(recorded: Recorded, log: logging.Logger) -> None:
    anything = cast("Any", log)
    warm(log)
    for name in ("message", "asctime", "name", "args"):
        with pytest.raises(KeyError, match=f"Attempt to overwrite '{name}'"):
            log.info("x", extra={name: 1})
    for call in (
        anything.info,
        lambda: anything.info("x", unknown=1),
        lambda: anything.info("x", msg="y"),
        lambda: anything.log("INFO", "x"),
        lambda: anything.log(logging.INFO),
        anything.debug,
    ):
        with pytest.raises(TypeError):
            call()
    log.setLevel(logging.WARNING)
    warm(log)
    anything.info("below", unknown=1)
    with pytest.raises(TypeError):
        anything.info("below", msg="y")
    with pytest.raises(TypeError):
        NativeLogger.info()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        NativeLogger.info(cast("Any", "no logger"), "x")
    assert messages(recorded) == []


def test_what_cannot_be_formatted_is_reported_by_place(
    recorded: Recorded, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    warm(log)
    log.info("%d", "secret")
    log.info("%s", Silent())
    log.info("after")
    assert messages(recorded) == ["after"]
    reported = capsys.readouterr().err.splitlines()
    assert len(reported) == 2
    assert all("test_native_logger.py:" in line and "secret" not in line for line in reported)


def test_an_interrupt_while_formatting_is_not_swallowed(recorded: Recorded, log: logging.Logger) -> None:
    class Interrupted:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    warm(log)
    with pytest.raises(KeyboardInterrupt):
        log.info("%s", Interrupted())
    assert_native(lambda: log.info("after"))
    assert messages(recorded) == ["after"]


def test_what_is_logged_while_a_record_is_made_is_ignored(recorded: Recorded, log: logging.Logger) -> None:
    class Chatty:
        def __str__(self) -> str:
            log.info("inner")
            log.info("inner %s", Chatty())
            return "chatty"

    warm(log)
    log.info("%s", Chatty())
    log.info("outer", extra={"value": Chatty()})
    log.info("slow %s", Chatty(), stack_info=True)
    assert_native(lambda: log.info("after"))
    assert messages(recorded) == ["chatty", "outer", "slow chatty", "after"]


def test_names_met_before_keep_their_values_and_their_order(recording: Recording, log: logging.Logger) -> None:
    recorded = recording(queue_bytes=64 << 20, level="DEBUG")
    names = [f"name{number}" for number in range(70)]
    shapes = [
        names[:1], names[:2], names[1::-1], names[:3], [*names[:2], names[3]], names[:64], names[:65], names,
        [names[0], "\udc80"], [names[0], "n" * 5000],
    ]  # fmt: skip
    values = (1, 2.5, "text", None, True, False, 10**30, "\udc80", ["list"], -(2**63), Speaking())
    warm(log)
    expected = []
    for turn in range(2000):
        shape = shapes[turn * 7 % len(shapes) if turn % 3 else turn % 2]
        extra = {name: values[(turn + at) % len(values)] for at, name in enumerate(shape)}
        log.info("%d", turn, extra=extra)
        expected.append(extra)
    handler = Handler()
    for turn, extra in enumerate(expected):
        record = logging.LogRecord(log.name, logging.INFO, "here.py", 1, str(turn), (), None)
        vars(record).update(extra)
        handler.handle(record)
    records = recorded.records("log")
    both = zip(records[:2000], records[2000:], expected, strict=True)
    for native, plain, extra in both:
        assert native["message"] == plain["message"]
        found, wanted = (list(record["attributes"].items())[: len(extra)] for record in (native, plain))
        assert found == wanted
    for name in ("message", "asctime", "lineno"):
        for _ in range(200):
            log.info("x", extra={names[0]: 1})
            with pytest.raises(KeyError, match=name):
                log.info("x", extra={names[0]: 1, name: 2})


def test_values_that_change_extra_meanwhile_do_no_harm(recorded: Recorded, log: logging.Logger) -> None:
    extra: dict[str, object] = {}

    class Clearing:
        def __str__(self) -> str:
            extra.clear()
            extra.update({str(number): [number] for number in range(100)})
            return "cleared"

    extra.update(a=Clearing(), b=["b"], c="c")
    warm(log)
    log.info("x", extra=extra)
    attributes = recorded.records("log")[0]["attributes"]
    assert (attributes["a"], attributes["b"], attributes["c"]) == ("cleared", ["b"], "c")


def test_threads_at_once_lose_nothing(recording: Recording, log: logging.Logger) -> None:
    recorded = recording(queue_bytes=16 << 20)

    def work() -> None:
        for number in range(500):
            log.info("%s", Speaking() if number % 7 == 0 else number, extra={"n": number})

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [record["attributes"]["n"] for record in recorded.records("log")]
    assert sorted(numbers) == sorted(list(range(500)) * 8)


def test_a_forked_child_logs_though_its_parent_was_handling_a_record(recorded: Recorded, log: logging.Logger) -> None:
    inside, leave = threading.Event(), threading.Event()

    class Waiting:
        def __str__(self) -> str:
            inside.set()
            leave.wait()
            return "waited"

    warm(log)
    thread = threading.Thread(target=lambda: log.info("%s", Waiting()))
    thread.start()
    inside.wait()
    log.info("another thread's")
    child = os.fork()
    if child == 0:
        log.info("child")
        log.info("child %s", Speaking())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    leave.set()
    thread.join()
    assert sorted(messages(recorded)) == ["another thread's", "child", "child speaking", "waited"]


def test_many_places_and_forgotten_code_have_the_right_places(recorded: Recorded, log: logging.Logger) -> None:
    warm(log)
    for number in range(1500):
        names: dict[str, Any] = {"log": log}
        exec(compile("\n" * number + "def call():\n    log.info('here')\n", f"file{number}", "exec"), names)
        names["call"]()
    places = [record["attributes"] for record in recorded.records("log")]
    assert [(place["code.file.path"], place["code.line.number"]) for place in places] == [
        (f"file{number}", number + 2) for number in range(1500)
    ]


def test_the_levels_of_logging_decide_and_not_the_configured_one(recording: Recording, log: logging.Logger) -> None:
    recorded = recording(level="ERROR")
    warm(log)
    assert_native(lambda: log.info("at logging's level"))
    assert get_logger(log.name).warning("below ours") is False
    assert messages(recorded) == ["at logging's level"]
