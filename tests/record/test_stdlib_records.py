"""The standard library's handler reads records whatever their attributes' order is, and loses none of `extra`."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest

from inference_logging import Handler
from tests.kit.support import Recorded

PLACE = {"code.file.path": __file__, "code.line.number": 7, "code.function.name": "here"}
CALLS = 400
"""Calls with the same names: after some of them the names are known by their addresses."""


def made(**more: Any) -> logging.LogRecord:
    """Make a record as the standard library does."""
    record = logging.LogRecord("app", logging.INFO, __file__, 7, "hello", (), None, "here")
    vars(record).update(more)
    return record


def reordered(record: logging.LogRecord, order: Callable[[list[str]], list[str]]) -> logging.LogRecord:
    """Give a record its attributes in another order."""
    attributes = dict(vars(record))
    record.__dict__ = {name: attributes[name] for name in order(list(attributes))}
    return record


def test_the_handler_returns_what_it_has_handled_and_takes_it_by_name(recorded: Recorded) -> None:
    record = made()
    handle: Any = Handler().handle
    assert handle(record) is record
    assert handle(record=record)
    with pytest.raises(TypeError, match="argument"):
        handle()
    with pytest.raises(TypeError, match="argument"):
        handle(record, record)
    with pytest.raises(TypeError, match="Handler"):
        Handler.handle(logging.NullHandler(), record)
    assert [line["attributes"] for line in recorded.records("log")] == [PLACE, PLACE]


def test_no_python_code_runs_between_a_logger_and_the_queue(recorded: Recorded) -> None:
    called: list[str] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    record, handler = made(model="m"), Handler()
    sys.setprofile(profile)
    try:
        handler.handle(record)
    finally:
        sys.setprofile(None)
    assert called == []
    assert len(recorded.records("log")) == 1


def test_names_of_extra_that_came_often_are_not_taken_for_others(recorded: Recorded) -> None:
    handler = Handler()
    given: list[Mapping[str, object]] = []
    for number in range(CALLS):
        more: dict[str, object] = {"model": "m", ("tokens" if number % 3 else "user"): number}
        given += [more, {**more, "cost": 0.5}, {"model": number % 2 == 0}, {}]
        for extra in given[-4:]:
            handler.handle(made(**extra))
    assert [line["attributes"] for line in recorded.records("log")] == [{**extra, **PLACE} for extra in given]


def test_a_value_with_code_of_its_own_is_recorded_behind_known_names(recorded: Recorded) -> None:
    class Speaking:
        def __str__(self) -> str:
            return "speaking"

    handler = Handler()
    for _ in range(CALLS):
        handler.handle(made(model="m", speaker=1))
    handler.handle(made(model=[1, None], speaker=Speaking()))
    assert recorded.records("log")[-1]["attributes"] == {"model": [1, None], "speaker": "speaking", **PLACE}


@pytest.mark.parametrize(
    "order",
    [lambda names: names[::-1], sorted, lambda names: [*names[1:], names[0]]],
    ids=["reversed", "sorted", "the name last"],
)
def test_attributes_in_another_order_are_found(recorded: Recorded, order: Callable[[list[str]], list[str]]) -> None:
    record = reordered(made(model="m", tokens=3), order)
    Handler().handle(record)
    (line,) = recorded.records("log")
    assert (line["logger"], line["message"], line["severity_text"]) == ("app", "hello", "INFO")
    assert line["attributes"] == {"model": "m", "tokens": 3, **PLACE}


@pytest.mark.parametrize("name", ["process", "processName", "taskName", "created", "module"])
def test_an_attribute_in_the_place_of_another_is_recorded(recorded: Recorded, name: str) -> None:
    behind, within = made(), made()
    vars(behind).pop(name, None)
    vars(behind)["tenant"] = "acme"
    within.__dict__ = {("tenant" if own == name else own): value for own, value in vars(within).items()}
    within.__dict__["tenant"] = "acme"
    for record in (behind, within):
        Handler().handle(record)
    assert [line["attributes"] for line in recorded.records("log")] == [{"tenant": "acme", **PLACE}] * 2


@pytest.mark.parametrize("name", ["name", "msg", "levelname", "pathname", "lineno", "exc_info", "stack_info"])
def test_a_record_without_an_attribute_that_is_read_stops_nothing(
    recorded: Recorded, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    record = made()
    delattr(record, name)
    Handler().handle(record)
    Handler().handle(made())
    assert recorded.records("log")[-1]["attributes"] == PLACE
    assert "cannot be formatted" in capsys.readouterr().err


def test_what_a_formatter_before_has_noted_is_no_attribute(recorded: Recorded) -> None:
    formatter, handler = logging.Formatter("%(asctime)s %(message)s"), Handler()
    for extra in ({}, {"model": "m"}):
        for _ in range(CALLS):
            record = made(**extra)
            formatter.format(record)
            handler.handle(record)
        assert recorded.records("log")[-1]["attributes"] == {**extra, **PLACE}


def test_what_a_factory_adds_is_recorded_though_it_was_set_before_the_package_was_imported() -> None:
    program = """
import logging

class Record(logging.LogRecord):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.tenant = "acme"

logging.setLogRecordFactory(Record)
from inference_logging.record.integrations.stdlib import STANDARD_ATTRIBUTES
assert "tenant" not in STANDARD_ATTRIBUTES, STANDARD_ATTRIBUTES
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
