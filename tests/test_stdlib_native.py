"""A record that the core reads by itself is the one that the handler's Python code makes."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging import Handler
from inference_logging._native import handled, put_record
from tests.support import Recorded


class PythonHandler(Handler):
    """Goes the way of a record that the core leaves to Python."""

    def emit(self, record: logging.LogRecord) -> None:
        handled(self._emit, record)


class Text(str):
    """A text of another class."""

    __slots__ = ()


class Raising:
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20), st.just(Text("other"))
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=5), SCALARS, max_size=3))
NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["message", "asctime", "taskName", "code.file.path", "exception.type", "model"]),
)
FORMATS = st.sampled_from(["%s", "%d", "%r", "%5.1f", "100 %", "%s of %s", "%(a)s", "", "plain", "ünï %s 🦀", "\ud800"])
ARGUMENTS = st.one_of(
    st.none(),
    st.just({}),
    st.lists(VALUES, max_size=3).map(tuple),
    st.lists(st.integers(), min_size=9, max_size=9).map(tuple),
    st.dictionaries(st.sampled_from(["a", "b"]), SCALARS, max_size=2),
)
MESSAGES = st.one_of(FORMATS, SCALARS, st.just(Raising()))
RECORDS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["app", "app.model", ""]),
        "msg": MESSAGES,
        "args": ARGUMENTS,
        "levelno": st.sampled_from([5, 10, 20, 25, 30, 40, 50, 99]),
        "levelname": st.sampled_from(["DEBUG", "INFO", "WARNING", "NOTICE"]),
        "pathname": st.sampled_from([__file__, ""]),
        "lineno": st.sampled_from([0, 1, 77]),
        "funcName": st.sampled_from([None, "function"]),
        "stack_info": st.sampled_from([None, "Stack (most recent call last):\n  here"]),
        "exc_info": st.sampled_from([None, False, (None, None, None), (ValueError, ValueError("no"), None)]),
    }
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=RECORDS, extra=st.dictionaries(NAMES, VALUES, max_size=5))
def test_both_ways_make_the_same_record(recorded: Recorded, made: dict[str, Any], extra: dict[str, Any]) -> None:
    record = logging.makeLogRecord(made)
    vars(record).update({name: value for name, value in extra.items() if name not in made})
    before = len(recorded.records("log"))
    for handler in (Handler(), PythonHandler()):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "stderr", None)
            handler.emit(record)
    lines = recorded.records("log")[before:]
    own = ({name: value for name, value in line.items() if name not in ("seq", "timestamp")} for line in lines)
    found = list(own)
    assert len(found) in (0, 2)
    assert found[:1] == found[1:]


@pytest.mark.parametrize(
    "arguments", [("hello", None), ("%s in %d s", ("model", 3)), ("%.1f", (2.5,)), ("%s", (None,))]
)
def test_an_ordinary_record_takes_no_python_code(recorded: Recorded, arguments: tuple[str, tuple[object, ...]]) -> None:
    message, values = arguments
    record = logging.makeLogRecord({"name": "app", "msg": message, "args": values, "levelno": 20, "levelname": "INFO"})
    vars(record).update(model="m", tokens=3, ratio=0.5, cached=True, tenant=None)
    assert put_record(Handler(), record) is True
    (line,) = recorded.records("log")
    assert line["attributes"] == {"model": "m", "tokens": 3, "ratio": 0.5, "cached": True, "tenant": None}


@pytest.mark.parametrize(
    "more",
    [
        {"exc_info": (ValueError, ValueError("no"), None)},
        {"stack_info": "Stack"},
        {"args": (Raising(),), "msg": "%s"},
        {"msg": Raising()},
        {"request": Raising()},
        {"levelno": None},
    ],
)
def test_what_runs_other_code_is_left_to_python(recorded: Recorded, more: dict[str, Any]) -> None:
    record = logging.makeLogRecord({"name": "app", "msg": "hello", "levelno": 20, "levelname": "INFO", **more})
    assert put_record(Handler(), record) is False
    assert recorded.records("log") == []


def test_a_record_of_another_class_or_with_another_text_is_left_to_python(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(logging.LogRecord):
        pass

    other = Other("app", 20, __file__, 1, "hello", None, None)
    assert put_record(Handler(), other) is False
    record = logging.makeLogRecord({"name": "app", "msg": "hello", "levelno": 20, "levelname": "INFO"})
    monkeypatch.setattr(logging.LogRecord, "getMessage", lambda self: "another")
    assert put_record(Handler(), record) is False
    Handler().emit(record)
    assert [line["message"] for line in recorded.records("log")] == ["another"]


def test_a_handler_with_a_filter_or_a_method_of_its_own_is_asked(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> logging.LogRecord:
        return logging.makeLogRecord({"name": "app", "msg": "hello", "levelno": 20, "levelname": "INFO"})

    plain, filtering, seen = Handler(), Handler(), list[str]()

    class Filtering(Handler):
        def filter(self, record: logging.LogRecord) -> Any:
            seen.append("class")
            return False

    def refuse(_: logging.LogRecord) -> bool:
        seen.append("filter")
        return False

    filtering.addFilter(refuse)
    plain.handle(made())
    for handler in (filtering, Filtering()):
        assert not handler.handle(made())
    monkeypatch.setattr(Handler, "emit", lambda self, record: seen.append("emit"))
    plain.handle(made())
    assert seen == ["filter", "class", "emit"]
    assert len(recorded.records("log")) == 1
