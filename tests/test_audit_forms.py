"""Audit records with ever-new fields: none is lost, and none takes the room of events that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from inference_logging import AuditError, Logger
from inference_logging.metrics import InferenceLoggingCollector
from tests.audited import Open, problems, records

MANY = 3000


def audit_all(logger: Logger, *forms: tuple[str, Mapping[str, object]]) -> list[bool]:
    """Make an audit record of each form at the same time; return what each call returned."""

    async def main() -> list[bool]:
        return list(await asyncio.gather(*(logger.audit(event, **fields) for event, fields in forms)))

    return asyncio.run(main())


def test_ever_new_fields_of_one_event_leave_room_for_every_later_event(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    forms: list[tuple[str, dict[str, Any]]] = [("order", {f"label_{n}": n, "who": "bob"}) for n in range(MANY)]
    assert audit_all(logger, *forms, *((f"later_{n}", {"a": n}) for n in range(200))) == [True] * (MANY + 200)
    assert len(records(tmp_path)) == MANY + 200
    for number, record in enumerate(records(tmp_path, "order")):
        fields = record.get("attributes", record)
        assert (fields[f"label_{number}"], fields["who"]) == (number, "bob")
    assert "attributes" not in records(tmp_path, "order")[15]
    assert records(tmp_path, "later_199")[0]["a"] == 199
    assert problems(tmp_path) == []


def test_ever_new_fields_of_many_events_leave_room_for_every_later_event(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    forms = [(f"e{n % 100}", {f"label_{n}": n}) for n in range(MANY)]
    assert audit_all(logger, *forms, ("later", {"a": 1})) == [True] * (MANY + 1)
    assert records(tmp_path, "later")[0]["a"] == 1


def test_fields_in_a_map_are_what_they_are_in_a_record(open_: Open, tmp_path: Path) -> None:
    class Large(int, Enum):
        ONE = 1 << 70

    logger = open_(audit_commit_records=1000, redact_fields="password")
    audit_all(logger, *(("order", {f"label_{n}": n}) for n in range(16)))
    fields = {
        "large": Large.ONE,
        "raw": b"\xffx",
        "nested": {"a": [1]},
        "password": "hunter2",
        "timestamp": 1,
        "": None,
    }
    assert audit_all(logger, ("order", fields)) == [True]
    assert records(tmp_path, "order")[-1]["attributes"] == {
        **fields,
        # An integer beyond 64 bits is its digits, since readers disagree about such numbers.
        "large": str(1 << 70),
        "raw": "\ufffdx",
        "password": "[redacted:field]",
    }


def exhaust(logger: Logger) -> str:
    """Make records of ever-new events until one is refused; return the reason."""
    with pytest.raises(AuditError, match="too_many_events") as caught:
        audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    return caught.value.reason


def test_ever_new_events_are_refused_with_a_reason_and_counted(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_commit_records=1000)
    assert audit_all(logger, ("known", {"a": 1})) == [True]
    assert exhaust(logger) == "too_many_events"
    assert audit_all(logger, ("known", {"a": 2})) == [True]
    assert logger.stats()["audit"]["dropped"]["serialize_error"]["INFO"] > 0
    with pytest.raises(ValueError, match="schema area is full"):
        logger.event("explicit", [f"field_{number}" for number in range(50)], lane="audit")
    assert [record["a"] for record in records(tmp_path, "known")] == [1, 2]


def test_ever_new_events_are_counted_where_nothing_may_raise(open_: Open) -> None:
    logger = open_(audit_commit_records=1000, audit_overflow="count")
    accepted = audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert logger.stats()["audit"]["dropped"] == {"serialize_error": {"INFO": accepted.count(False)}}
    assert 0 < accepted.count(False) < MANY


def test_the_room_for_events_is_a_metric(open_: Open) -> None:
    logger = open_(audit_commit_records=1000, audit_overflow="count")
    registry = CollectorRegistry()
    registry.register(InferenceLoggingCollector(logger))

    def fill() -> float:
        found = registry.get_sample_value("inference_logging_audit_events_fill_ratio")
        assert found is not None
        return found

    before = fill()
    audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(500)))
    assert 0.0 < before < fill() < 1.0
    audit_all(logger, *((f"order of {n}", {"amount": n}) for n in range(MANY)))
    assert fill() > 0.99
