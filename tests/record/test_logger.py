"""The application's own records, and registered events: every value becomes valid JSON, and nothing raises."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger, OpenError, get_logger
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.support import Recorded, answer, doing, http_scope, read_lines, read_records, replying

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")


@pytest.mark.parametrize(
    ("method", "severity"),
    [("debug", "DEBUG"), ("info", "INFO"), ("warning", "WARN"), ("error", "ERROR"), ("critical", "FATAL")],
)
def test_each_level_has_its_severity_and_name_message_and_attributes(
    recording: Recording, method: str, severity: str
) -> None:
    recorded = recording(level="DEBUG")
    assert getattr(get_logger("app.module"), method)("loaded", model="m", seconds=2.5) is True
    (record,) = recorded.records("log")
    assert list(record)[:6] == ["timestamp", "severity_text", "event_name", "boot_id", "pid", "seq"]
    assert list(record)[6:] == ["logger", "message", "attributes"]
    assert (record["severity_text"], record["logger"], record["message"]) == (severity, "app.module", "loaded")
    assert record["attributes"] == {"model": "m", "seconds": 2.5}
    assert list(record["attributes"]) == ["model", "seconds"]


def test_records_below_the_level_are_ignored_and_not_counted(recording: Recording) -> None:
    recorded = recording(level="WARN")
    log = get_logger("app")
    assert [log.debug("no"), log.info("no"), log.warning("yes")] == [False, False, True]
    assert [record["message"] for record in recorded.records()] == ["yes"]
    assert (recorded.logger.stats()["accepted"], recorded.logger.stats()["dropped"]) == (1, {})


def test_a_logger_made_before_anything_is_open_finds_it_later(configure: Configure) -> None:
    log = get_logger("early")
    with Logger(configure()) as logger:
        assert log.info("late")
        assert logger.flush()
        assert [record["logger"] for record in read_records(logger.config.directory)] == ["early"]


def test_the_first_record_opens_a_logger_configured_by_the_environment(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    for name in ("directory", "queue_directory", "queue_bytes"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    # A process of its own: in this one, a logger of another test may be open.
    code = """
from inference_logging import Config, Logger, get_logger
assert get_logger("app").info("first")
Logger.shared(Config()).close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [record["message"] for record in read_records(config.directory)] == ["first"]


def test_after_closing_records_are_refused_and_do_not_raise(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = Logger(configure())
    emit = logger.event("e", ["a"])
    assert logger.close() is True
    assert logger.close() is True
    assert emit(1) is False
    assert logger.stats()["dropped"] == {"already_shutdown": {"INFO": 1}}


def test_the_ids_of_the_request_under_way_are_on_every_record_made_inside_it(recorded: Recorded) -> None:
    log = get_logger("app")

    recorded.serve(doing(lambda: log.info("inside")), http_scope(headers=[(b"x-request-id", b"req-1")]))
    log.info("outside")
    inside, outside = recorded.records("log")
    request = recorded.request()
    for key in ("trace_id", "span_id", "trace_flags", "request_id"):
        assert inside[key] == request[key]
        assert key not in outside
    assert request["client_request_id"] == "req-1"


def test_concurrent_requests_do_not_mix_their_ids(recording: Recording) -> None:
    import asyncio

    from tests.kit.support import Client

    recorded = recording()
    log = get_logger("app")

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        for _ in range(5):
            log.info("step", path=scope["path"])
            await asyncio.sleep(0)
        await asyncio.to_thread(log.info, "in a thread", path=scope["path"])
        await replying(*answer(b"x"))(scope, receive, send)

    async def serve() -> None:
        served, client = recorded.wrap(app), Client
        sides = [(http_scope(f"/{number}"), client()) for number in range(20)]
        await asyncio.gather(*(served(scope, side.receive, side.send) for scope, side in sides))

    asyncio.run(serve())
    span_of = {record["url.path"]: record["span_id"] for record in recorded.records("request")}
    logs = recorded.records("log")
    assert len(logs) == 20 * 6
    assert all(record["span_id"] == span_of[record["attributes"]["path"]] for record in logs)


def test_an_exception_is_recorded_with_type_message_and_stack(recorded: Recorded) -> None:
    try:
        raise LookupError("lost ünïcode")
    except LookupError:
        get_logger("app").exception("failed", model="m")
    (record,) = recorded.records("log")
    attributes = record["attributes"]
    assert record["severity_text"] == "ERROR"
    assert (attributes["model"], attributes["exception.type"]) == ("m", "LookupError")
    assert attributes["exception.message"] == "lost ünïcode"
    assert "Traceback" in attributes["exception.stacktrace"]
    assert "test_logger.py" in attributes["exception.stacktrace"]


def test_exception_without_an_exception_is_an_error_record(recorded: Recorded) -> None:
    assert get_logger("app").exception("nothing to show")
    assert "attributes" not in recorded.records("log")[0]


def test_an_attribute_of_an_exceptions_own_is_taken_from_the_exception(recorded: Recorded) -> None:
    try:
        raise LookupError("lost")
    except LookupError:
        assert get_logger("app").exception("failed", **{"exception.message": "set by the caller"})
    assert recorded.records("log")[0]["attributes"]["exception.message"] == "lost"


def test_an_exception_whose_text_cannot_be_had_does_not_raise(recorded: Recorded) -> None:
    class Mute(Exception):  # noqa: N818 - a name for this test
        def __str__(self) -> str:
            raise RuntimeError("mute")

    try:
        raise Mute
    except Mute:
        assert get_logger("app").exception("failed")
    assert recorded.records("log")[0]["attributes"]["exception.type"].endswith("Mute")


def test_an_event_is_written_with_its_fields_in_the_registered_order(recorded: Recorded) -> None:
    emit = recorded.logger.event("engine.step", ["zeta", "alpha", "mid"], severity="WARN")
    assert emit(1, "two", None)
    (record,) = recorded.records("engine.step")
    assert list(record.items())[6:] == [("zeta", 1), ("alpha", "two"), ("mid", None)]
    assert record["severity_text"] == "WARN"


def test_an_event_can_carry_the_ids_of_the_request(recorded: Recorded) -> None:
    emit = recorded.logger.event("step", ["n"], with_request=True)

    recorded.serve(doing(lambda: emit(1)))
    emit(2)
    inside, outside = recorded.records("step")
    assert (inside["n"], inside["span_id"]) == (1, recorded.request()["span_id"])
    assert (outside["n"], "span_id" in outside) == (2, False)


@pytest.mark.parametrize("values", [(), (1,), (1, 2, 3)])
def test_a_wrong_number_of_values_is_refused_and_counted(recorded: Recorded, values: tuple[int, ...]) -> None:
    emit = recorded.logger.event("pair", ["a", "b"])
    assert emit(*values) is False
    assert recorded.logger.stats()["dropped"] == {"serialize_error": {"INFO": 1}}
    assert recorded.records("pair") == []


def test_a_record_without_a_message_is_refused_and_counted(recorded: Recorded) -> None:
    assert get_logger("app").error() is False
    assert get_logger("app").error("two", "messages") is False
    assert recorded.logger.stats()["dropped"] == {"serialize_error": {"ERROR": 2}}


def test_a_record_that_is_too_large_is_refused_counted_and_reported_in_band(recorded: Recorded) -> None:
    assert get_logger("app").info("x" * 200_000) is False
    assert get_logger("app").info("small") is True
    dropped, small = recorded.records()
    assert (dropped["event_name"], dropped["dropped"]) == ("log.dropped", 1)
    assert dropped["reasons"] == recorded.logger.stats()["dropped"] == {"oversize": {"INFO": 1}}
    assert small["message"] == "small"


@pytest.mark.parametrize(
    ("name", "fields", "severity", "reported"),
    [
        ("", ["a"], "INFO", "name"),
        ("x" * 129, ["a"], "INFO", "name"),
        ("e", ["a", "a"], "INFO", "a"),
        ("e", ["timestamp"], "INFO", "timestamp"),
        ("e", [""], "INFO", "field"),
        ("e", ["f" * 129], "INFO", "field"),
        ("e", ["a"], "LOUD", "severity='LOUD'"),
        ("request", ["a"], "INFO", "request"),
    ],
)
def test_a_bad_registration_is_refused_at_once_naming_what_is_wrong(
    recorded: Recorded, name: str, fields: list[str], severity: str, reported: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reported)):
        recorded.logger.event(name, fields, severity=severity)


def test_every_line_has_its_head_in_order_a_nanosecond_time_and_the_next_number(recorded: Recorded) -> None:
    for number in range(300):
        get_logger("app").info("n", n=number)
    lines = [line for line in read_lines_after_flush(recorded) if line["event_name"] == "log"]
    assert [line["seq"] for line in lines] == list(range(300))
    assert all(TIMESTAMP.fullmatch(line["timestamp"]) for line in lines)
    assert sorted(line["timestamp"] for line in lines) == [line["timestamp"] for line in lines]
    assert len({(line["boot_id"], line["pid"]) for line in lines}) == 1


def read_lines_after_flush(recorded: Recorded) -> list[dict[str, Any]]:
    assert recorded.logger.flush()
    return read_lines(recorded.config.directory)


def test_a_segment_is_closed_with_a_footer_whose_books_balance(recorded: Recorded) -> None:
    for number in range(10):
        get_logger("app").info("n", n=number)
    recorded.close()
    header, *_, footer = read_lines(recorded.config.directory)
    assert (header["event_name"], footer["event_name"]) == ("segment.header", "segment.footer")
    assert footer["records"] == 10 + 1, "the end of the process is a record, too"
    (books,) = footer["processes"]
    assert (books["accepted"], books["written"], books["in_queue"], books["dropped"]) == (10, 10, 0, {})


def test_threads_at_once_lose_and_double_nothing(recording: Recording) -> None:
    recorded = recording(queue_bytes=16 << 20)
    barrier = threading.Barrier(8)

    def work(thread: int) -> None:
        log = get_logger(f"thread-{thread}")
        barrier.wait()
        for number in range(500):
            assert log.info("n", n=number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    records = recorded.records("log")
    assert sorted(record["seq"] for record in records) == list(range(4000))
    for thread in range(8):
        own = [record["attributes"]["n"] for record in records if record["logger"] == f"thread-{thread}"]
        assert own == list(range(500))


@pytest.mark.parametrize("what", ["a file", "a symbolic link", "too open"])
def test_a_queue_directory_that_is_not_safe_stops_at_start_naming_the_parameter(
    configure: Configure, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "bad"
    if what == "a file":
        path.write_bytes(b"")
    elif what == "a symbolic link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(OpenError, match="queue_directory"):
        Logger(configure(queue_directory=path))


def test_a_directory_of_segments_that_cannot_be_had_stops_at_start_naming_the_parameter(
    configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(OpenError, match="directory"):
        Logger(configure(directory=path))
