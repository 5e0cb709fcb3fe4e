"""The standard library's handler: existing loggers go the same way, with extra, exceptions and ids."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inference_logging import Config, Handler, get_logger
from tests.support import Receive, Recorded, Send, answer, http_scope, read_records, replying

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
    recording: Callable[..., Recorded], logger: logging.Logger, level: int, severity: str, kept: dict[str, str]
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
    recording: Callable[..., Recorded], logger: logging.Logger
) -> None:
    recorded = recording(level="ERROR")
    logger.debug("let through")
    logger.handlers[0].setLevel(logging.INFO)
    logger.debug("left out")
    assert get_logger("app").warning("below ours") is False
    assert [record["message"] for record in recorded.records("log")] == ["let through"]


def test_the_configured_level_decides_about_waiting_records_of_our_loggers_only(
    configure: Callable[..., Config],
) -> None:
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


def test_threads_at_once_lose_nothing(recording: Callable[..., Recorded], logger: logging.Logger) -> None:
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
