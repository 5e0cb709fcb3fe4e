"""The names of keywords are encoded once per call site: every record has the names of its own call, in their order."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import get_logger
from tests.support import Recorded, read_records

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
