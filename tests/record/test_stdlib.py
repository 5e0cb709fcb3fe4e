"""The standard library's handler: existing loggers go the same way, with extra, exceptions and ids."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging import Handler, get_logger
from inference_logging._native import handled, put_record
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.support import Recorded, answer, http_scope, read_records, replying

PLACE = {"code.file.path", "code.line.number", "code.function.name"}


def own_attributes(record: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a record without the place of its call, which each has."""
    attributes = record["attributes"]
    assert set(attributes) >= PLACE
    return {name: value for name, value in attributes.items() if name not in PLACE}


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Return a standard-library logger of this test alone that sends to our handler."""
    logger = logging.Logger("stdlib.test", logging.DEBUG)  # noqa: LOG001 - outside the tree, so that no other test sees it
    logger.addHandler(Handler())
    yield logger
    for handler in logger.handlers:
        handler.close()


@pytest.mark.parametrize(
    ("level", "severity", "kept"),
    [
        (10, "DEBUG", {}),
        (20, "INFO", {}),
        (25, "INFO", {"levelname": "NOTICE"}),
        (30, "WARN", {}),
        (40, "ERROR", {}),
        (50, "FATAL", {}),
        (99, "FATAL", {"levelname": "Level 99"}),
        (5, "DEBUG", {"levelname": "Level 5"}),
    ],
)
def test_each_level_has_its_severity_and_keeps_a_name_of_its_own(
    recording: Recording, logger: logging.Logger, level: int, severity: str, kept: dict[str, str]
) -> None:
    logging.addLevelName(25, "NOTICE")
    recorded = recording(level="DEBUG")
    logger.setLevel(1)
    logger.log(level, "loaded %s in %d s", "model", 3)
    (record,) = recorded.records("log")
    assert (record["severity_text"], record["logger"]) == (severity, "stdlib.test")
    assert record["message"] == "loaded model in 3 s"
    assert own_attributes(record) == kept


def test_the_place_of_the_call_is_recorded(recorded: Recorded, logger: logging.Logger) -> None:
    def helper() -> None:
        logger.info("from below", stacklevel=2)

    logger.info("here")
    helper()
    here, below = (record["attributes"] for record in recorded.records("log"))
    assert here["code.file.path"] == __file__
    assert here["code.function.name"] == "test_the_place_of_the_call_is_recorded"
    assert (below["code.function.name"], below["code.line.number"]) == (
        here["code.function.name"],
        here["code.line.number"] + 1,
    )


def test_a_renamed_level_keeps_its_name(recorded: Recorded, logger: logging.Logger) -> None:
    record = logger.makeRecord("renamed", logging.INFO, __file__, 1, "hello", (), None)
    record.levelname = "NOTE"
    logger.handle(record)
    assert own_attributes(recorded.records("log")[0]) == {"levelname": "NOTE"}


def test_extra_becomes_attributes(recorded: Recorded, logger: logging.Logger) -> None:
    logger.info("done", extra={"tokens": 7, "nested": {"a": [1, None]}})
    assert own_attributes(recorded.records("log")[0]) == {"tokens": 7, "nested": {"a": [1, None]}}


def test_an_extra_attribute_of_any_name_passes(recorded: Recorded, logger: logging.Logger) -> None:
    names = {"self": 1, "record": 2, "": 3, 'quo"te': 4, "extra": {"a": 5}, "stacklevel": 6}
    logger.info("done", extra=names)
    assert own_attributes(recorded.records("log")[0]) == names


def test_the_exception_is_recorded(recorded: Recorded, logger: logging.Logger) -> None:
    try:
        raise LookupError("lost")
    except LookupError:
        logger.exception("failed")
    (record,) = recorded.records("log")
    assert record["severity_text"] == "ERROR"
    assert record["attributes"]["exception.type"] == "LookupError"
    assert record["attributes"]["exception.message"] == "lost"
    assert "Traceback" in record["attributes"]["exception.stacktrace"]


def test_exc_info_without_an_exception_adds_nothing(recorded: Recorded, logger: logging.Logger) -> None:
    logger.error("failed", exc_info=True)  # noqa: LOG014 - the case in question
    assert own_attributes(recorded.records("log")[0]) == {}


def test_stack_info_is_recorded(recorded: Recorded, logger: logging.Logger) -> None:
    logger.warning("here", stack_info=True)
    assert "test_stack_info_is_recorded" in recorded.records("log")[0]["attributes"]["code.stacktrace"]


def test_the_message_is_formatted_at_once_and_not_when_it_is_written(
    recorded: Recorded, logger: logging.Logger
) -> None:
    values = [1]
    logger.info("values %s", values)
    values.append(2)
    assert recorded.records("log")[0]["message"] == "values [1]"


def test_the_ids_of_the_request_under_way_are_carried(recorded: Recorded, logger: logging.Logger) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        logger.info("inside")
        await asyncio.to_thread(logger.info, "in a thread")
        await replying(*answer(b"x"))(scope, receive, send)

    recorded.serve(app, http_scope(headers=[(b"x-request-id", b"req-1")]))
    request = recorded.request()
    for record in recorded.records("log"):
        assert (record["span_id"], record["request_id"]) == (request["span_id"], request["request_id"])


def test_a_message_that_cannot_be_formatted_does_not_raise_and_is_reported_without_its_text(
    recorded: Recorded, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.info("%d", "no number")
    logger.info("after")
    assert [record["message"] for record in recorded.records("log")] == ["after"]
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "test_stdlib.py:" in reported
    assert "TypeError" in reported
    assert "no number" not in reported


def test_a_value_that_logs_while_it_is_encoded_does_not_recurse(recorded: Recorded, logger: logging.Logger) -> None:
    class Chatty:
        def __str__(self) -> str:
            logger.info("logged while encoding", extra={"value": Chatty()})
            return "chatty"

    logger.info("outer %s", Chatty())
    logger.info("outer", extra={"value": Chatty()})
    records = recorded.records("log")
    assert [record["message"] for record in records] == ["outer chatty", "outer"]
    assert records[1]["attributes"]["value"] == "chatty"


def test_the_handler_obeys_the_levels_of_logging_and_not_the_configured_one(
    recording: Recording, logger: logging.Logger
) -> None:
    recorded = recording(level="ERROR")
    logger.debug("let through")
    logger.handlers[0].setLevel(logging.INFO)
    logger.debug("left out")
    assert get_logger("app").warning("below ours") is False
    assert [record["message"] for record in recorded.records("log")] == ["let through"]


def test_the_configured_level_decides_about_waiting_records_of_our_loggers_only(configure: Configure) -> None:
    config = configure(level="ERROR")
    # A process of its own: in this one, a logger of another test has been open.
    places = {"directory": str(config.directory), "queue_directory": str(config.queue_directory)}
    code = f"""
import logging
from inference_logging import Config, Handler, Logger, get_logger
logging.basicConfig(level="INFO", handlers=[Handler()])
logging.info("of logging")
get_logger("app").info("ours")
Logger(Config(level="ERROR", **{places})).close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [record["message"] for record in read_records(config.directory, "log")] == ["of logging"]


def test_a_filter_of_the_handler_is_heard(recorded: Recorded, logger: logging.Logger) -> None:
    logger.handlers[0].addFilter(lambda record: "secret" not in record.getMessage())
    logger.info("a secret")
    logger.info("public")
    assert [record["message"] for record in recorded.records("log")] == ["public"]


def test_the_handler_can_be_named_in_a_configuration_dictionary(recorded: Recorded) -> None:
    handlers = {"ours": {"class": "inference_logging.Handler", "level": "WARNING"}}
    loggers = {"configured": {"handlers": ["ours"], "level": "DEBUG", "propagate": False}}
    logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": False, "handlers": handlers, "loggers": loggers}
    )
    try:
        logging.getLogger("configured").info("below the handler's level")
        logging.getLogger("configured").warning("at it")
    finally:
        logging.getLogger("configured").handlers.clear()
    assert [record["message"] for record in recorded.records("log")] == ["at it"]


def test_threads_at_once_lose_nothing(recording: Recording, logger: logging.Logger) -> None:
    recorded = recording(queue_bytes=16 << 20)

    def work() -> None:
        for number in range(500):
            logger.info("n", extra={"n": number})

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [record["attributes"]["n"] for record in recorded.records("log")]
    assert sorted(numbers) == sorted(list(range(500)) * 8)


def test_a_fork_while_another_thread_logs_does_not_hang_the_childs_logging(
    recorded: Recorded, logger: logging.Logger
) -> None:
    stop = threading.Event()

    def chatter() -> None:
        while not stop.is_set():
            logger.info("parent")

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                logger.warning("child")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    recorded.logger.flush()
    recorded.close()


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


@pytest.mark.servers
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
