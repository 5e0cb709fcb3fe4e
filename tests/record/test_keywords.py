"""Ordinary calls and their keywords: every record has the names and values of its own call, in their order."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger, get_logger
from tests.kit.signatures import Configure, Recording
from tests.kit.support import Recorded, read_records

CALLS = 200
"""More than it takes until a call site is known."""
Call = Callable[..., Any]


def call_site(names: list[str]) -> Call:
    """Compile a function with one call of its argument: with these names, and each value from a list."""
    fields = ", ".join(f"{name}=values[{position}]" for position, name in enumerate(names))
    space: dict[str, Call] = {}
    exec(f"def call(info, values):\n    return info('called', {fields})\n", space)
    return space["call"]


def attributes(recorded: Recorded) -> list[dict[str, Any]]:
    """Return the attributes of all records."""
    return [record.get("attributes", {}) for record in recorded.records("log")]


def test_equal_names_in_another_order_are_another_call_site(recorded: Recorded) -> None:
    info = get_logger("app").info
    for number in range(CALLS):
        info("one", first=number, second="b")
        info("two", second="b", first=number)
    found = [list(fields.items()) for fields in attributes(recorded)]
    assert found[::2] == [[("first", number), ("second", "b")] for number in range(CALLS)]
    assert found[1::2] == [[("second", "b"), ("first", number)] for number in range(CALLS)]


def test_a_call_with_changing_names_has_its_own(recorded: Recorded) -> None:
    # The tuple of the names is made for each call, mostly where that of the last call was.
    info = get_logger("app").info
    expected = [{f"name{number % 7}": number, f"other{number}": None} for number in range(CALLS * 4)]
    for fields in expected:
        assert info("called", **fields)
    assert attributes(recorded) == expected


def test_more_call_sites_than_are_kept_have_their_own_names_each(recorded: Recorded) -> None:
    info = get_logger("app").info
    sites = [call_site([f"site{number}", "value"]) for number in range(600)]
    for turn in range(40):
        for number, call in enumerate(sites):
            assert call(info, [number, turn])
        assert recorded.logger.flush()
    expected = [{f"site{number}": number, "value": turn} for turn in range(40) for number in range(600)]
    assert attributes(recorded) == expected


def test_call_sites_that_come_and_go_do_not_inherit_names(recorded: Recorded) -> None:
    info = get_logger("app").info
    expected = []
    for number in range(60):
        call = call_site([f"site{number}"])
        for turn in range(40):
            assert call(info, [turn])
            expected.append({f"site{number}": turn})
        del call
        gc.collect(1)
    assert attributes(recorded) == expected


def test_names_of_any_length_are_kept_whole(recorded: Recorded) -> None:
    info = get_logger("app").info
    names = ["a" * length for length in (1, 26, 27, 28, 29, 32, 33, 64, 65, 300)] + ["é" * 14, "é" * 15, "naïve"]
    together, alone = call_site(names), [call_site([name]) for name in names]
    for _ in range(CALLS):
        assert together(info, list(range(len(names))))
    for call in alone * CALLS:
        assert call(info, ["x"])
    found = attributes(recorded)
    assert found[:CALLS] == [{name: position for position, name in enumerate(names)}] * CALLS
    assert found[CALLS:] == [{name: "x"} for name in names] * CALLS


def test_many_names_and_values_beyond_the_inline_buffer(recorded: Recorded) -> None:
    info = get_logger("app").info
    few, many = [f"field{number}" for number in range(60)], [f"field{number}" for number in range(100)]
    for names in (few, many):
        call = call_site(names)
        for length in range(CALLS):
            assert call(info, ["v" * length] * len(names))
            assert recorded.logger.flush()
    found = attributes(recorded)
    assert found[:CALLS] == [dict.fromkeys(few, "v" * length) for length in range(CALLS)]
    assert found[CALLS:] == [dict.fromkeys(many, "v" * length) for length in range(CALLS)]


def test_every_kind_of_value_stands_behind_its_name(recorded: Recorded) -> None:
    info = get_logger("app").info
    values = ["", "é", "\ud800", 0, -1, 2**63 - 1, 2**63, -(2**70), 0.5, True, False, None, b"bytes", [1, {"a": None}]]
    call = call_site([f"value{position}" for position in range(len(values))])
    for _ in range(CALLS):
        assert call(info, values)
    expected = [*values[:2], "\\ud800", *values[3:7], str(values[7]), *values[8:12], "bytes", values[13]]
    assert [list(fields.values()) for fields in attributes(recorded)] == [expected] * CALLS


def test_a_value_whose_text_logs_too_does_not_disturb_the_call(recorded: Recorded) -> None:
    info = get_logger("app").info
    inner = [call_site([f"inner{number}"]) for number in range(600)]

    class Chatty:
        """A value whose text is made by code that makes other calls known in place of this one."""

        def __str__(self) -> str:
            for call in inner * 2:
                call(info, [1])
            gc.collect(1)
            return "chatty"

    for _ in range(CALLS // 4):
        assert info("outer", before=1, value=Chatty(), after=2)
        assert recorded.logger.flush()
    outer = [record["attributes"] for record in recorded.records("log") if record["message"] == "outer"]
    assert outer == [{"before": 1, "value": "chatty", "after": 2}] * (CALLS // 4)


def test_the_standard_librarys_keywords_are_never_fields(recorded: Recorded) -> None:
    info = get_logger("app").info
    for number in range(CALLS):
        assert info("called", number=number, extra={"more": 1})
    assert attributes(recorded) == [{"more": 1, "number": number} for number in range(CALLS)]


def test_bound_fields_give_way_to_the_keywords_of_the_call(recorded: Recorded) -> None:
    log = get_logger("app").bind(user="eve", shard=3)
    for number in range(CALLS):
        assert log.info("called", number=number, user="bob")
        assert log.info("called")
    found = attributes(recorded)
    assert [list(fields.items()) for fields in found[::2]] == [
        [("shard", 3), ("number", number), ("user", "bob")] for number in range(CALLS)
    ]
    assert found[1::2] == [{"user": "eve", "shard": 3}] * CALLS


def test_a_forked_child_knows_the_call_sites_of_its_parent(tmp_path: Path) -> None:
    code = f"""
import os
from inference_logging import Config, Logger, get_logger
def call(number):
    assert get_logger("app").info("called", number=number, name="n")
with Logger(Config(directory={str(tmp_path / "segments")!r}, queue_directory={str(tmp_path / "queues")!r})) as logger:
    for number in range({CALLS}):
        call(number)
    child = os.fork()
    for number in range({CALLS}):
        call(number)
    if child == 0:
        logger.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
    found = [record["attributes"] for record in read_records(tmp_path / "segments", "log")]
    assert sorted(fields["number"] for fields in found) == sorted([*range(CALLS)] * 3)
    assert all(list(fields) == ["number", "name"] and fields["name"] == "n" for fields in found)


# No object has that many references; CPython gives more to those that it never frees.
IMMORTAL = 1 << 28


def test_what_is_known_is_bounded_in_memory(recorded: Recorded) -> None:
    info = get_logger("app").info
    names = [sys.intern(f"bounded{number}") for number in range(2000)]
    call_site(names[:1])
    if sys.getrefcount(names[0]) > IMMORTAL:
        pytest.skip("names in code live for ever in this Python, so no reference to them is counted")
    before = references(names)
    for position in range(len(names)):
        call = call_site([names[position]])
        for turn in range(CALLS // 4):
            call(info, [turn])
        del call
    gc.collect(1)
    held = sum(after > count for count, after in zip(before, references(names), strict=True))
    assert 0 < held <= 256


def references(objects: list[str]) -> list[int]:
    """Return how many references there are to each object."""
    return [sys.getrefcount(found) for found in objects]


def attributes_of(recorded: Recorded) -> dict[str, Any]:
    """Return the attributes of the only record."""
    (record,) = recorded.records("log")
    found = record.get("attributes", {})
    assert isinstance(found, dict)
    return found


def test_arguments_are_formatted_into_the_message(recorded: Recorded) -> None:
    log = get_logger("app")
    assert log.info("user %s did %d", "bob", 3)
    assert log.info("user %(name)s", {"name": "eve"}, tries=2)
    assert log.info("100%")
    assert log.info(404, "unused") is False
    messages = [record["message"] for record in recorded.records("log")]
    assert messages == ["user bob did 3", "user eve", "100%"]
    assert recorded.records("log")[1]["attributes"] == {"tries": 2}


@pytest.mark.parametrize("form", ["true", "error", "tuple"])
def test_exc_info_takes_what_the_standard_library_takes(recorded: Recorded, form: str) -> None:
    try:
        raise LookupError("lost")
    except LookupError as error:
        exc_info = {"true": True, "error": error, "tuple": sys.exc_info()}[form]
        assert get_logger("app").error("failed for %s", "bob", exc_info=exc_info, tries=2)
    found = attributes_of(recorded)
    assert (found["tries"], found["exception.type"], found["exception.message"]) == (2, "LookupError", "lost")
    assert found["exception.stacktrace"].startswith("Traceback (most recent call last):\n")
    assert found["exception.stacktrace"].rstrip().endswith("LookupError: lost")
    assert "exc_info" not in found


@pytest.mark.parametrize("exc_info", [None, False, (None, None, None), True])
def test_exc_info_without_an_exception_adds_nothing(recorded: Recorded, exc_info: object) -> None:
    assert get_logger("app").error("failed", exc_info=exc_info)
    assert attributes_of(recorded) == {}


def test_stack_info_is_the_stack_of_the_call(recorded: Recorded) -> None:
    assert get_logger("app").warning("here", stack_info=True)
    stack = attributes_of(recorded)["code.stacktrace"]
    assert stack.startswith("Stack (most recent call last):\n")
    assert "test_stack_info_is_the_stack_of_the_call" in stack.splitlines()[-2]
    assert "stack_info=True" in stack.splitlines()[-1]


def test_extra_becomes_attributes_beside_the_keywords_which_go_first(recorded: Recorded) -> None:
    assert get_logger("app").info("done", extra={"tokens": 7, "who": "extra", 1: None}, who="keyword")
    assert attributes_of(recorded) == {"tokens": 7, "who": "keyword", "1": None}


@pytest.mark.parametrize("odd", [{"extra": 5}, {"stacklevel": "high"}])
def test_what_is_no_mapping_or_no_level_stays_an_attribute(recorded: Recorded, odd: dict[str, object]) -> None:
    assert get_logger("app").info("odd", **odd)
    assert attributes_of(recorded) == odd


def helper(log: Callable[..., bool], level: int) -> None:
    """Make a record that is to name its caller."""
    log("from below", stacklevel=level)


def test_stacklevel_names_the_place_of_the_call(recorded: Recorded) -> None:
    helper(get_logger("app").info, 1)
    helper(get_logger("app").info, 2)
    helper(get_logger("app").exception, 2)
    own, *callers = (record["attributes"] for record in recorded.records("log"))
    assert own["code.function.name"] == "helper"
    for caller in callers:
        assert caller["code.function.name"] == "test_stacklevel_names_the_place_of_the_call"
        assert caller["code.file.path"] == __file__
        assert caller["code.line.number"] > own["code.line.number"]


def test_a_record_names_no_place_that_nobody_asked_for(recorded: Recorded) -> None:
    assert get_logger("app").info("fast")
    assert attributes_of(recorded) == {}


def test_warn_is_warning(recorded: Recorded) -> None:
    assert get_logger("app").warn("old")
    assert recorded.records("log")[0]["severity_text"] == "WARN"


@pytest.mark.parametrize(
    ("level", "severity"), [(10, "DEBUG"), (20, "INFO"), (30, "WARN"), (40, "ERROR"), (50, "FATAL"), (5, "DEBUG")]
)
def test_log_takes_a_level_of_the_standard_library(recording: Recording, level: int, severity: str) -> None:
    recorded = recording(level="DEBUG")
    assert get_logger("app").log(level, "at %d", level)
    (record,) = recorded.records("log")
    assert (record["severity_text"], record["message"]) == (severity, f"at {level}")


def test_log_keeps_the_name_of_a_level_that_has_one_of_its_own(recorded: Recorded) -> None:
    logging.addLevelName(25, "NOTICE")
    assert get_logger("app").log(25, "noticed")
    assert attributes_of(recorded) == {"levelname": "NOTICE"}


def test_bound_fields_are_on_every_record_and_a_call_goes_before_them(recorded: Recorded) -> None:
    log = get_logger("app")
    bound = log.bind(user="bob", step=1).bind(step=2, tags=["a"])
    assert bound.name == "app"
    assert bound.info("plain")
    assert bound.info("with %s", "arguments", step=3)
    assert bound.info("keyword", step=4, more=None)
    assert log.info("unbound")
    records = [record.get("attributes") for record in recorded.records("log")]
    assert records == [
        {"user": "bob", "step": 2, "tags": ["a"]},
        {"user": "bob", "step": 3, "tags": ["a"]},
        {"user": "bob", "step": 4, "tags": ["a"], "more": None},
        None,
    ]


def test_a_level_that_is_set_holds_for_the_name_and_all_below_it(recorded: Recorded) -> None:
    below, beside, bound = get_logger("service.db"), get_logger("services"), get_logger("service").bind(a=1)
    get_logger("service").setLevel(logging.ERROR)
    get_logger("service.db.pool").setLevel("INFO")
    try:
        assert [log.warning("no") for log in (below, bound, get_logger("service"))] == [False] * 3
        assert [log.warning("yes") for log in (beside, get_logger("service.db.pool"))] == [True] * 2
        assert below.error("yes")
        get_logger("service").setLevel(logging.NOTSET)
        assert below.warning("yes")
    finally:
        for name in ("service", "service.db.pool"):
            get_logger(name).setLevel(logging.NOTSET)
    assert {record["message"] for record in recorded.records("log")} == {"yes"}
    assert recorded.logger.stats()["dropped"] == {}


def test_is_enabled_for_answers_as_a_call_would(recording: Recording) -> None:
    recording(level="WARN")
    log = get_logger("enabled")
    assert [log.isEnabledFor(level) for level in (10, 20, 30, 40, 50)] == [False, False, True, True, True]
    log.setLevel("CRITICAL")
    try:
        assert [log.isEnabledFor(level) for level in (30, 40, 50)] == [False, False, True]
    finally:
        log.setLevel(logging.NOTSET)


def test_is_enabled_for_opens_nothing(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure()
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(config.directory))
    assert get_logger("app").isEnabledFor(logging.INFO)
    assert not config.directory.exists()


@pytest.mark.parametrize("level", ["LOUD", None, 1.5])
def test_a_level_that_is_none_is_refused_by_name(level: Any) -> None:
    with pytest.raises(ValueError, match=r"level="):
        get_logger("app").setLevel(level)


def test_a_call_that_is_refused_is_said_once_per_call_site_without_its_text(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    log, pair = get_logger("app"), recorded.logger.event("pair", ["a", "b"])
    for _ in range(3):
        assert log.info("%d tokens", "a secret") is False
        assert log.error() is False
        assert log.info("x" * 200_000) is False
        assert pair(1) is False
    said = capsys.readouterr().err
    assert "secret" not in said
    lines = said.splitlines()
    assert [line.count("test_keywords.py:") for line in lines] == [1] * 4
    reasons = ("cannot be formatted (TypeError)", "message", "oversize", "serialize_error")
    for line, why in zip(lines, reasons, strict=True):
        assert why in line
    assert recorded.logger.stats()["dropped"] == {"oversize": {"INFO": 3}, "serialize_error": {"INFO": 6, "ERROR": 3}}


def test_arguments_that_cannot_be_shown_do_not_raise(recorded: Recorded) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert get_logger("app").info("%s", Mute()) is False
    assert recorded.logger.stats()["dropped"] == {"serialize_error": {"INFO": 1}}


def test_a_message_made_of_arguments_is_one_call_site_of_the_budget(configure: Configure) -> None:
    with Logger(configure(budget_records_s=10)) as logger:
        for number in range(500):
            get_logger("app").info("request %s", f"text {chr(97 + number % 26)}")
        assert logger.flush()
        assert len(read_records(logger.config.directory, "log")) < 100


def test_a_call_with_arguments_before_anything_is_open_is_written_later(configure: Configure) -> None:
    log = get_logger("early").bind(user="bob")
    try:
        raise LookupError("lost")
    except LookupError:
        assert log.exception("failed %d times", 3)
    with Logger(configure()) as logger:
        assert logger.flush()
        found = [record for record in read_records(logger.config.directory, "log") if record["logger"] == "early"]
    assert [record["message"] for record in found] == ["failed 3 times"]
    assert found[0]["attributes"]["user"] == "bob"
    assert found[0]["attributes"]["exception.message"] == "lost"
