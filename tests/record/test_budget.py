"""The budget of application records: floods are thinned, rare call sites are not, and the weights say by how much."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from inference_logging import Handler, get_logger
from tests.kit.signatures import Receive, Recording, Send
from tests.kit.support import Client, answer, doing, http_scope, replying

FLOOD = 20_000
BUDGET = 50


def weight(records: list[dict[str, Any]]) -> float:
    return sum(float(record.get("adjusted_count", 1.0)) for record in records)


def by_message(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record["message"], []).append(record)
    return found


def test_a_rare_message_beside_a_flood_is_kept_entirely_and_the_flood_is_thinned(recording: Recording) -> None:
    recorded, log = recording(budget_records_s=BUDGET), get_logger("app")
    accepted = 0
    for number in range(FLOOD):
        accepted += log.info("chunk")
        if number % (FLOOD // 20) == 0:
            assert log.info("checkpoint")
    messages = by_message(recorded.records("log"))
    assert len(messages["checkpoint"]) == 20
    assert not any("adjusted_count" in record for record in messages["checkpoint"])
    assert BUDGET <= len(messages["chunk"]) == accepted < FLOOD / 10
    # Evenly kept: what is missing is at most one weight per share that was in force.
    assert weight(messages["chunk"]) == pytest.approx(FLOOD, rel=0.25)
    stats = recorded.logger.stats()
    assert stats["sampled_out"] == {"budget": FLOOD - accepted}
    assert stats["accepted"] == accepted + 20


def test_messages_that_differ_in_numbers_only_are_one_call_site(recording: Recording) -> None:
    recorded, log = recording(budget_records_s=BUDGET), get_logger("app")
    for number in range(FLOOD):
        message = f"step {number} took {number / 7:.2f} s"
        log.info(message)
    assert BUDGET <= len(recorded.records("log")) < FLOOD / 10


def test_loggers_and_severities_are_call_sites_of_their_own(recording: Recording) -> None:
    recorded = recording(budget_records_s=BUDGET)
    for _ in range(FLOOD):
        get_logger("one").info("same")
    assert get_logger("other").info("same")
    assert get_logger("one").error("same")
    records = recorded.records("log")
    assert all(record.get("adjusted_count", 1.0) == 1.0 for record in records[-2:])


def test_records_of_the_standard_library_are_thinned_alike(recording: Recording) -> None:
    recorded, logger = recording(budget_records_s=BUDGET), logging.getLogger("thinned")
    logger.addHandler(handler := Handler())
    logger.setLevel(logging.INFO)
    try:
        for number in range(2000):
            logger.info("slot %d is busy", number)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    records = recorded.records("log")
    assert BUDGET <= len(records) < 1000
    assert weight(records) == pytest.approx(2000, rel=0.25)


def test_what_warns_is_never_thinned(recording: Recording) -> None:
    recorded, log = recording(budget_records_s=BUDGET), get_logger("app")
    failed = recorded.logger.event("engine.failed", ["number"], severity="WARN")
    for number in range(2000):
        assert log.warning("slot is busy")
        assert log.error("slot is lost")
        assert failed(number)
    records = recorded.records()
    assert len(records) == 6000
    assert not any("adjusted_count" in record for record in records)


def test_a_registered_event_is_thinned_as_one_call_site(recording: Recording) -> None:
    recorded = recording(budget_records_s=BUDGET)
    step = recorded.logger.event("engine.step", ["running"])
    rare = recorded.logger.event("engine.reload", ["model"])
    accepted = sum(step(number) for number in range(FLOOD))
    assert rare("tiny")
    records = recorded.records("engine.step")
    assert BUDGET <= len(records) == accepted < FLOOD / 10
    assert weight(records) == pytest.approx(FLOOD, rel=0.25)
    (only,) = recorded.records("engine.reload")
    assert "adjusted_count" not in only


def test_an_event_with_a_weight_of_its_own_is_not_thinned(recording: Recording) -> None:
    recorded = recording(budget_records_s=1)
    step = recorded.logger.event("engine.sampled", ["adjusted_count"])
    assert all(step(float(number)) for number in range(1000))
    assert [record["adjusted_count"] for record in recorded.records("engine.sampled")] == list(range(1000))


def test_within_requests_a_flood_is_thinned_by_trace_so_that_a_request_is_kept_whole_or_not(
    recording: Recording,
) -> None:
    recorded, log = recording(budget_records_s=BUDGET), get_logger("app")

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        for part in ("first", "second", "third"):
            log.info(part)
        await replying(*answer(b"x"))(scope, receive, send)

    wrapped = recorded.wrap(app)

    async def serve() -> None:
        for number in range(1500):
            trace = f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"
            client = Client()
            headers = [(b"traceparent", f"00-{trace}-00f067aa0ba902b7-01".encode())]
            await wrapped(http_scope("/thinned", headers=headers), client.receive, client.send)
            assert len(client.sent) == 2, "no request notices"

    asyncio.run(serve())
    kept = {message: {record["trace_id"] for record in records} for message, records in
            by_message(recorded.records("log")).items()}  # fmt: skip
    assert BUDGET / 4 <= len(kept["first"]) < 1500
    # The three messages come in at the same rate, so their thresholds are the same up to the moment of a halving.
    assert len(kept["first"] ^ kept["third"]) <= 20
    thinned = [record for record in recorded.records("request") if record["adjusted_count"] > 1]
    assert thinned
    assert weight(recorded.records("request")) == pytest.approx(1500, rel=0.5)
    assert len({record["trace_id"] for record in thinned} & kept["second"]) > len(thinned) / 2


def test_requests_and_application_records_share_one_budget_and_made_up_paths_get_no_more(recording: Recording) -> None:
    recorded, log = recording(budget_records_s=BUDGET), get_logger("app")

    wrapped = recorded.wrap(doing(lambda: log.info("served")))

    async def serve() -> None:
        for number in range(3000):
            client = Client()
            path = "/" + "".join(chr(97 + int(digit)) for digit in str(number))
            await wrapped(http_scope(path), client.receive, client.send)

    begun_s = time.monotonic()
    asyncio.run(serve())
    windows = int(time.monotonic() - begun_s) + 2
    records = [*recorded.records("log"), *recorded.records("request")]
    # Each window may keep twice the budget, and a budget for each halving.
    assert BUDGET <= len(records) < 8 * BUDGET * windows
    assert weight(recorded.records("request")) == pytest.approx(3000, rel=0.5)


def test_without_a_budget_nothing_is_thinned_and_no_weight_is_written(recording: Recording) -> None:
    recorded, log = recording(), get_logger("app")
    step = recorded.logger.event("engine.step", ["n"])
    assert all(log.info("same") and step(number) for number in range(3000))
    records = recorded.records()
    assert len(records) == 6000
    assert not any("adjusted_count" in record for record in records)
    assert recorded.logger.stats()["sampled_out"] == {}
