"""Values of records: whatever Python object is logged becomes valid JSON that says the same, and nothing raises."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import sys
import uuid
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging import Json, get_logger
from tests.kit.support import Recorded, parse


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


class Hostile(Unprintable):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]


class Text(str):
    __slots__ = ()


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)
KEYS = {str(2**64): 1, "true": 2, "null": 3, "2026-01-02T03:04:05+00:00": 4, "\\ud800": 5}


VALUES: list[tuple[Any, Any]] = [
    ('text " \\ \n\t\x00\x1f ü \U0001f600 \u2028', 'text " \\ \n\t\x00\x1f ü \U0001f600 \u2028'),
    ("lone \ud800 surrogate", "lone \\ud800 surrogate"),
    (Text("subclass"), "subclass"),
    (0, 0),
    (-(2**63), -(2**63)),
    (2**63 - 1, 2**63 - 1),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    (-(2**63) - 1, str(-(2**63) - 1)),
    (10**400, str(10**400)),
    (10**5000, "<int with too many digits>"),
    (0.1, 0.1),
    (-0.0, -0.0),
    (5e-324, 5e-324),
    (math.nan, "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (True, True),
    (None, None),
    (b"bytes", "bytes"),
    (b"\xff\x00", "\ufffd\x00"),
    (bytearray(b"x"), "x"),
    ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
    ({"nested": {"deep": [1.5, "x"]}}, {"nested": {"deep": [1.5, "x"]}}),
    ({1: "int key"}, {"1": "int key"}),
    ((1, 2), [1, 2]),
    ({"inner": b"bytes"}, {"inner": "bytes"}),
    ([bytearray(b"bytes"), b"\xff"], ["bytes", "\ufffd"]),
    ({b"key": [b"bytes", 2**64]}, {"key": ["bytes", str(2**64)]}),
    (MOMENT, "2026-01-02T03:04:05+00:00"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (decimal.Decimal("1.50"), "1.50"),
    (np.float64(2.5), 2.5),
    (np.arange(3), [0, 1, 2]),
    (Json('{"ready":[1,2]}'), {"ready": [1, 2]}),
    (Json("[1e999,18446744073709551616]"), ["1e999", "18446744073709551616"]),
    ({"big": 2**64, "others": [1, (2,), {}]}, {"big": str(2**64), "others": [1, [2], {}]}),
    ({"raises": Unprintable(), "stays": 1}, {"raises": "<Unprintable that cannot be encoded>", "stays": 1}),
    (["lone \ud800 surrogate", 10**5000, 1], ["lone \\ud800 surrogate", "<int with too many digits>", 1]),
    ({2**64: 1, True: 2, None: 3, MOMENT: 4, "\ud800": 5}, KEYS),
    (Unprintable(), "<Unprintable that cannot be encoded>"),
    (Hostile(), "<Hostile that cannot be encoded>"),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_written_as_json_that_says_the_same(recorded: Recorded, value: Any, expected: Any) -> None:
    emit = recorded.logger.event("value", ["value", "after"])
    assert emit(value, "after") is True
    assert get_logger("app").info(value, attribute=value) is True
    record, log = recorded.records()
    for found in (record["value"], log["message"], log["attributes"]["attribute"]):
        assert found == expected
        assert type(found) is type(expected)
    assert record["after"] == "after"


def nested_lists(levels: int, inside: Any = None) -> Any:
    """Return lists within each other, the innermost with ``inside``."""
    for _ in range(levels):
        inside = [inside]
    return inside


@pytest.mark.parametrize("levels", [28, 29, 30, 50, 250])
def test_what_lies_deeper_than_readers_take_is_json_text(recorded: Recorded, levels: int) -> None:
    emit = recorded.logger.event("value", ["value", "after"])
    assert emit(nested_lists(levels), "after")
    assert get_logger("app").info("deep", value=nested_lists(levels))
    record, log = recorded.records()
    # The line is one level, and so is the map of attributes.
    for found, kept in ((record["value"], 29), (log["attributes"]["value"], 28)):
        deeper = json.dumps(nested_lists(levels - kept), separators=(",", ":")) if levels > kept else None
        assert found == nested_lists(min(levels, kept), deeper)
    assert record["after"] == "after"


def test_a_structure_that_contains_itself_is_recorded_as_unencodable(recorded: Recorded) -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert get_logger("app").info("loop", value=loop)
    assert recorded.records("log")[0]["attributes"]["value"] == "<list that cannot be encoded>"


def test_attribute_names_of_any_kind_are_kept(recorded: Recorded) -> None:
    names = {"": 1, 'quo"te': 2, "new\nline": 3, "ünï": 4, "message": 5, "self": 6, "\U0001f600": 7}
    assert get_logger("app").info("names", **names)
    assert recorded.records("log")[0]["attributes"] == names


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=10,
)


_ARGUMENTS = {"exc_info", "stack_info", "extra", "stacklevel"}
"""Keywords that the standard library's loggers take: they are no attributes."""
_names = st.text(st.characters(codec="utf-8")).filter(lambda name: name not in _ARGUMENTS)


@pytest.mark.servers
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=_json, attributes=st.dictionaries(_names, _json, max_size=4))
def test_whatever_is_logged_becomes_one_line_of_valid_json(
    recorded: Recorded, message: Any, attributes: dict[str, Any]
) -> None:
    accepted = recorded.logger.stats()["accepted"]
    assert get_logger("app").info(message, **attributes) is True
    assert recorded.logger.stats()["accepted"] == accepted + 1
    assert recorded.logger.flush()
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    last = parse(segment.read_bytes().splitlines()[-1])
    assert (last["event_name"], last["seq"]) == ("log", accepted)
    assert set(last.get("attributes", {})) == set(attributes)


def test_references_do_not_leak(recorded: Recorded) -> None:
    log, emit = get_logger("app"), recorded.logger.event("leak", ["a", "b"])
    values = [object(), [1, 2], "text" * 10, 10**40, b"bytes", Unprintable()]
    before = [sys.getrefcount(value) for value in values]
    for _ in range(200):
        for at in range(len(values)):
            log.info(values[at], value=values[at])
            emit(values[at], values[at])
            emit(values[at])
    assert [sys.getrefcount(value) for value in values] == before


class Forged(int, Enum):
    """Enumerations of integers have a ``str`` of their own, which is the class's to choose."""

    LARGE = 1 << 70
    SMALL = 7

    def __str__(self) -> str:
        return '1,"event_name":"forged"'


@pytest.mark.parametrize("value", [Forged.LARGE, Forged.SMALL])
def test_an_integer_of_any_class_is_its_digits(recorded: Recorded, value: Forged) -> None:
    emit = recorded.logger.event("value", ["value"])
    assert emit(value)
    assert get_logger("app").info(value, attribute=value, nested=[value])
    record, log = recorded.records()
    expected = int(value) if value is Forged.SMALL else str(int(value))
    assert record["value"] == log["message"] == log["attributes"]["attribute"] == expected
    assert log["attributes"]["nested"] == [expected]
    assert "forged" not in str(record)
