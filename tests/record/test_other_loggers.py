"""structlog and loguru: their records go straight into the queue, with bound values and the place of the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from loguru import logger as loguru_logger

from inference_logging import loguru as ours_for_loguru
from inference_logging import structlog as ours_for_structlog
from inference_logging.record.integrations.stdlib import STANDARD_ATTRIBUTES
from tests.kit.signatures import Receive, Recording, Send
from tests.kit.support import Recorded, answer, http_scope, replying

NAMES = sorted(STANDARD_ATTRIBUTES - {"exc_info", "stack_info"})
"""Those that a record of logging cannot have, and what a call of this package takes for itself."""
CLASHING = {name: f"a field called {name}" for name in [*NAMES, "extra", "self", "logger", "severity"]}


@pytest.fixture(params=["filtering", "standard"])
def log(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a logger of structlog, of each of its usual kinds."""
    kinds = {"filtering": structlog.make_filtering_bound_logger(0), "standard": structlog.stdlib.BoundLogger}
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, ours_for_structlog.to_records],
        wrapper_class=kinds[request.param],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    yield structlog.get_logger("cart")
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.setLoggerClass(logging.Logger)  # The factory of structlog has set its own.


@pytest.fixture
def sink() -> Iterator[Any]:
    """Return loguru's logger, with our sink alone."""
    loguru_logger.remove()
    loguru_logger.add(ours_for_loguru.to_records, level=0, catch=False)
    yield loguru_logger
    loguru_logger.remove()


def place(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the place of the call in the first line of a function of this file."""
    line = function.__code__.co_firstlineno + 1
    code = {"file.path": __file__, "line.number": line, "function.name": function.__name__}
    return {f"code.{name}": value for name, value in code.items()}


def test_a_record_of_structlog_has_bound_values_arguments_and_its_place(recorded: Recorded, log: Any) -> None:
    structlog.contextvars.bind_contextvars(tenant="blue")

    def call() -> None:
        log.bind(user="ann").info("paid %d of %s", 12, "many", amount=[1, None])

    call()
    (record,) = recorded.records("log")
    assert (record["logger"], record["severity_text"], record["message"]) == ("cart", "INFO", "paid 12 of many")
    assert record["attributes"] == {"tenant": "blue", "user": "ann", "amount": [1, None], **place(call)}


def test_a_record_of_loguru_has_bound_values_arguments_and_its_place(recorded: Recorded, sink: Any) -> None:
    def call() -> None:
        sink.bind(user="ann").info("paid {} of {what}", 12, what="many")

    with sink.contextualize(tenant="blue"):
        call()
    (record,) = recorded.records("log")
    assert (record["logger"], record["severity_text"], record["message"]) == (__name__, "INFO", "paid 12 of many")
    assert record["attributes"] == {"tenant": "blue", "user": "ann", "what": "many", **place(call)}


def test_a_field_may_have_any_name(recorded: Recorded, log: Any, sink: Any) -> None:
    fields = {name: value for name, value in CLASHING.items() if name != "self"}  # which Python refuses
    log.info("user created", **fields)
    sink.patch(lambda record: record["extra"].update(CLASHING)).info("user created")
    of_structlog, of_loguru = recorded.records("log")
    assert of_structlog["attributes"].items() >= fields.items()
    assert of_loguru["attributes"].items() >= CLASHING.items()


@pytest.mark.parametrize(
    ("method", "severity"),
    [("debug", "DEBUG"), ("info", "INFO"), ("warning", "WARN"), ("error", "ERROR"), ("critical", "FATAL")],
)
def test_the_levels_of_structlog_and_loguru_decide_and_not_ours(
    recording: Recording, log: Any, sink: Any, method: str, severity: str
) -> None:
    recorded = recording(level="ERROR")
    getattr(log, method)("of structlog")
    getattr(sink, method)("of loguru")
    found = [(record["message"], record["severity_text"]) for record in recorded.records("log")]
    assert found == [("of structlog", severity), ("of loguru", severity)]


def test_a_level_of_logurus_own_keeps_its_name(recorded: Recorded, sink: Any) -> None:
    sink.success("done")
    (record,) = recorded.records("log")
    assert (record["severity_text"], record["attributes"]["levelname"]) == ("INFO", "SUCCESS")


def test_an_exception_is_recorded_as_everywhere(recorded: Recorded, log: Any, sink: Any) -> None:
    try:
        raise ValueError("no such cart")
    except ValueError:
        log.exception("of structlog")
        sink.exception("of loguru")
    for record in recorded.records("log"):
        attributes = record["attributes"]
        assert (record["severity_text"], attributes["exception.type"]) == ("ERROR", "ValueError")
        assert attributes["exception.message"] == "no such cart"
        assert "in test_an_exception_is_recorded_as_everywhere" in attributes["exception.stacktrace"]


def test_the_stack_of_a_call_of_structlog_is_recorded(recorded: Recorded, log: Any) -> None:
    log.info("here", stack_info=True)
    (record,) = recorded.records("log")
    assert record["attributes"]["code.stacktrace"].splitlines()[-1].strip().startswith("log.info(")


def test_an_asynchronous_call_of_structlog_has_the_callers_place_and_request(recorded: Recorded, log: Any) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await log.ainfo("inside")
        await replying(*answer(b"x"))(scope, receive, send)

    recorded.serve(app, http_scope())
    (record,) = recorded.records("log")
    assert record["request_id"] == recorded.request()["request_id"]
    assert record["attributes"] == place(app)


def test_a_call_that_cannot_be_read_raises_nothing_and_is_named(
    recorded: Recorded, sink: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(structlog.DropEvent):
        ours_for_structlog.to_records(None, "info", {"event": "%d of", "positional_args": ("a secret",)})
    sink.patch(lambda record: record.pop("file")).info("a secret")
    assert recorded.records("log") == []
    of_structlog, of_loguru = capfd.readouterr().err.splitlines()
    assert "cannot be formatted (TypeError)" in of_structlog
    assert "cannot be read (KeyError)" in of_loguru
    assert "secret" not in of_structlog + of_loguru


def test_a_logger_of_structlog_without_a_name_has_its_modules(recorded: Recorded) -> None:
    structlog.configure(processors=[ours_for_structlog.to_records])
    try:
        structlog.get_logger().info("paid")
    finally:
        structlog.reset_defaults()
    assert [record["logger"] for record in recorded.records("log")] == [__name__.rpartition(".")[2]]


def test_no_record_of_logging_is_made(recorded: Recorded, log: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        log.info("paid")
    assert (len(recorded.records("log")), caplog.records) == (1, [])


def test_tasks_at_once_keep_their_context_variables(recorded: Recorded, log: Any) -> None:
    async def task(number: int) -> None:
        structlog.contextvars.bind_contextvars(number=number)
        await asyncio.sleep(0)
        log.info("task", expected=number)

    async def tasks() -> None:
        await asyncio.gather(*(task(number) for number in range(20)))

    asyncio.run(tasks())
    pairs = [(record["attributes"]["number"], record["attributes"]["expected"]) for record in recorded.records("log")]
    assert sorted(pairs) == [(number, number) for number in range(20)]
