"""What records say of exceptions: type, message and stack, cut to ``stack_frames``, the same in all records."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from inference_logging import Handler, get_logger
from inference_logging.record.tracebacks import Tracebacks
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.support import Recorded, answer, http_scope, raising, read_lines, replying

TEXTS = ("exception.type", "exception.message", "exception.stacktrace")
FRAME = re.compile(r'^  File "', re.MULTILINE)


class RouteError(Exception):
    """What a route raises here."""


def deep(depth: int) -> None:
    """Raise below so many calls of itself."""
    if depth:
        deep(depth - 1)
    raise RouteError("too deep")


async def failing(scope: Any, receive: Receive, send: Send) -> None:
    """Fail as a route does whose helper raises."""
    deep(100)


def failed(recorded: Recorded, app: Any = failing) -> dict[str, Any]:
    """Return the record of a request whose application raises."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - which one it is, the caller knows
        recorded.serve(app, http_scope("/fail"))
    return recorded.request()


def record_of_a_log_call(recorded: Recorded) -> dict[str, Any]:
    """Return the attributes of an application record with an exception."""
    try:
        deep(100)
    except RouteError:
        get_logger("app").error("failed", exc_info=True)
    found = recorded.records("log")[0]["attributes"]
    assert isinstance(found, dict)
    return found


def record_of_the_handler(recorded: Recorded) -> dict[str, Any]:
    """Return the attributes of a standard-library record with an exception."""
    logger = logging.Logger("stdlib.tracebacks")  # noqa: LOG001 - outside the tree, so that no other test sees it
    logger.addHandler(Handler())
    try:
        deep(100)
    except RouteError:
        logger.exception("failed")
    found = recorded.records("log")[0]["attributes"]
    assert isinstance(found, dict)
    return found


WAYS: list[Callable[[Recorded], dict[str, Any]]] = [failed, record_of_a_log_call, record_of_the_handler]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("frames", [1, 2, 7, 20])
def test_a_stack_keeps_its_first_and_last_frames_and_states_how_many_are_left_out(
    recording: Recording, way: Callable[[Recorded], dict[str, Any]], frames: int
) -> None:
    found = way(recording(stack_frames=frames))
    assert (found["exception.type"], found["exception.message"]) == (f"{__name__}.RouteError", "too deep")
    stack = found["exception.stacktrace"]
    assert stack.startswith("Traceback (most recent call last):\n")
    assert stack.endswith(f"{__name__}.RouteError: too deep")
    assert len(FRAME.findall(stack)) == frames
    left_out = int(re.findall(r"^  \[(\d+) frames left out\]$", stack, re.MULTILINE)[0])
    assert left_out + frames > 100
    before, after = re.split(r"  \[\d+ frames left out\]\n", stack)
    assert len(FRAME.findall(before)) == frames // 2
    assert 'raise RouteError("too deep")' in after


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_frames_means_no_stack(recording: Recording, way: Callable[[Recorded], dict[str, Any]]) -> None:
    found = way(recording(stack_frames=0))
    assert "exception.message" in found
    assert "exception.stacktrace" not in found


def test_twenty_frames_are_kept_unless_configured(recorded: Recorded) -> None:
    assert recorded.config.stack_frames == 20
    assert len(FRAME.findall(failed(recorded)["exception.stacktrace"])) == 20


def test_a_request_that_fails_has_the_exception_behind_all_else(recorded: Recorded) -> None:
    record = failed(recorded)
    assert tuple(record)[-3:] == TEXTS
    assert (record["outcome"], record["error.type"]) == ("error", "RouteError")
    assert record["http.response.status_code"] == 500


def test_a_request_that_does_not_fail_has_none(recorded: Recorded) -> None:
    assert not set(recorded.request_of(replying(*answer(b"x")))) & set(TEXTS)


@pytest.mark.parametrize("error", [asyncio.CancelledError("stopped"), GeneratorExit()])
def test_a_request_that_is_given_up_has_none(recorded: Recorded, error: BaseException) -> None:
    record = failed(recorded, raising(error))
    assert record["error.type"] == type(error).__name__
    assert not set(record) & set(TEXTS)


def test_a_timeout_has_its_stack(recorded: Recorded) -> None:
    record = failed(recorded, raising(TimeoutError("the engine is silent")))
    assert (record["outcome"], record["exception.message"]) == ("timeout", "the engine is silent")


def test_what_an_exception_comes_from_stands_before_it_within_the_same_limit(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        try:
            deep(50)
        except RouteError as error:
            raise LookupError("no such model") from error

    stack = failed(recorded, app)["exception.stacktrace"]
    first, second = stack.split("\n\nThe above exception was the direct cause of the following exception:\n\n")
    assert first.endswith("RouteError: too deep")
    assert second.endswith("LookupError: no such model")
    assert len(FRAME.findall(stack)) <= recorded.config.stack_frames


def test_a_group_shows_its_members(recorded: Recorded) -> None:
    if sys.version_info < (3, 11):
        from exceptiongroup import ExceptionGroup  # type: ignore[import-not-found,unused-ignore]
    else:
        from builtins import ExceptionGroup

    group = ExceptionGroup("both", [LookupError("first"), RouteError("second")])
    stack = failed(recorded, raising(group))["exception.stacktrace"]
    assert "ExceptionGroup: both (2 sub-exceptions)" in stack
    assert "Sub-exception 1 of 2:\n\nLookupError: first" in stack
    assert f"Sub-exception 2 of 2:\n\n{__name__}.RouteError: second" in stack


def test_notes_are_part_of_the_stack(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        error = RouteError("odd")
        vars(error)["__notes__"] = ["seen twice", 7]
        raise error

    assert failed(recorded, app)["exception.stacktrace"].endswith("RouteError: odd\nseen twice")


@pytest.mark.parametrize("length", [10_000, 10_000_000])
def test_a_message_of_any_length_leaves_the_request_its_record(recording: Recording, length: int) -> None:
    recorded = recording(max_record_bytes="16KiB", capture_input="full")
    record = failed(recorded, raising(RouteError("ü" * length)))
    assert record["outcome"] == "error"
    assert record["exception.message"].endswith("ü…")
    assert len(record["exception.message"].encode()) <= 1024
    assert recorded.logger.stats()["dropped"] == {}


def test_where_a_body_takes_the_room_the_record_is_written_with_less_of_the_stack(recording: Recording) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        deep(100)

    body = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * 30_000 + b'"}]}'
    recorded = recording(max_record_bytes="16KiB", capture_input="full", chunk_timeline_limit=0)
    headers = [(b"content-type", b"application/json")]
    with pytest.raises(RouteError):
        recorded.serve(
            app, http_scope("/fail", "POST", headers), [{"type": "http.request", "body": body, "more_body": False}]
        )
    record = recorded.request()
    assert (record["outcome"], record["exception.message"]) == ("error", "too deep")
    assert recorded.logger.stats()["dropped"] == {}


def test_an_exception_without_a_text_does_not_raise(recorded: Recorded) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert failed(recorded, raising(MuteError))["exception.message"] == "<text that cannot be had>"


def test_exceptions_that_come_from_each_other_end(recorded: Recorded) -> None:
    first, second = RouteError("first"), RouteError("second")
    first.__context__, second.__context__ = second, first
    texts = Tracebacks().attributes((RouteError, first, None))
    assert texts["exception.stacktrace"].count("RouteError") == 2


def test_a_long_chain_is_cut(recorded: Recorded) -> None:
    error = RouteError("0")
    for number in range(1, 1000):
        following = RouteError(str(number))
        following.__cause__ = error
        error = following
    stack = Tracebacks().attributes((RouteError, error, None))["exception.stacktrace"]
    assert stack.count("RouteError") == 8
    assert stack.endswith("RouteError: 999")


def test_what_a_record_says_of_an_exception_is_redacted(configure: Configure) -> None:
    recorded = Recorded(configure(redact_patterns="email", redact_fields="password"))

    record = failed(recorded, raising(RouteError("bob@example.com is wrong: password=hunter2")))
    recorded.close()
    assert "[redacted:email] is wrong: password=[redacted" in record["exception.message"]
    assert record["exception.stacktrace"].endswith(record["exception.message"])
    assert "hunter2" not in str(read_lines(recorded.config.directory))


def test_a_secret_that_the_limit_of_a_message_cuts_is_redacted(configure: Configure) -> None:
    recorded = Recorded(configure(redact_patterns="email"))

    record = failed(recorded, raising(RouteError("x" * 4080 + " bob@example.com")))
    recorded.close()
    assert record["exception.message"].endswith("x [redacted:email]")
    assert "bob" not in record["exception.stacktrace"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_type_alone_can_be_kept(recording: Recording, way: Callable[[Recorded], dict[str, Any]]) -> None:
    found = way(recording(redact_fields="['exception.message'], ['exception.stacktrace']"))
    assert [found[name] for name in TEXTS] == [f"{__name__}.RouteError", "[redacted:field]", "[redacted:field]"]


@pytest.mark.parametrize(("value", "kept"), [(b"1", TEXTS[:1]), (b"no", TEXTS)])
def test_of_a_client_that_forbids_captures_the_type_alone_is_kept(
    recorded: Recorded, value: bytes, kept: tuple[str, ...]
) -> None:
    scope = http_scope("/fail", headers=[(b"x-no-capture", value)])
    record = recorded.request_of(failing, scope, raises=RouteError)
    assert tuple(name for name in record if name in TEXTS) == kept
