"""What `view` says of the logging itself: its account as `verify` has it, its losses, and a live queue directory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from inference_logging._native import DirectoryWatch
from inference_logging.read.view import books, lanes
from inference_logging.read.view.books import Verified
from tests.command_line import run
from tests.segment_files import log, request, write_segment
from tests.view_server import serving

LIMITS = lanes._limits()


@pytest.fixture
def logger(tmp_path: Path) -> Any:
    config = Config(
        directory=tmp_path / "logs", queue_directory=tmp_path / "queues", service_name="chat", flush_interval_s=0.05
    )
    with Logger(config) as opened:
        yield opened


def _answer(directory: Path) -> dict[str, Any]:
    with serving([directory]) as client:
        deadline = time.monotonic() + 60
        while (found := client.get("api/logging").json())["books_running"] and time.monotonic() < deadline:
            time.sleep(0.05)
        return dict(found)


def test_the_account_is_that_of_verify(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1), log(2)])
    found = _answer(tmp_path)
    expected = json.loads(run("verify", "--json", str(tmp_path)).out)
    assert found["books"]["totals"] == expected["totals"]
    assert found["books"]["balanced"] is False
    assert found["processes"] == expected["processes"]
    assert [one["kind"] for one in found["books"]["problems"]] == [one["kind"] for one in expected["problems"]]
    assert found["books_error"] is None
    assert found["lanes"] == []
    assert found["cost"] == {"hot_path_s": 0, "requests": 0, "hot_path_s_per_request": None}


def test_losses_and_the_history_of_health_come_from_the_segments_the_newest_first(tmp_path: Path) -> None:
    def event(second: float, name: str, **fields: Any) -> dict[str, Any]:
        return {**log(second), "event_name": name, **fields}

    records = [event(1, "sink.failed"), event(2, "log.dropped", dropped=7), event(3, "sink.recovered"), log(4)]
    write_segment(tmp_path, records)
    found = _answer(tmp_path)
    assert [one["dropped"] for one in found["drops"]] == [7]
    assert [one["event_name"] for one in found["health"]] == ["sink.recovered", "sink.failed"]
    assert all(":" in one["key"] for one in [*found["drops"], *found["health"]])


def test_a_live_queue_directory_shows_its_health_sinks_and_counts(logger: Any, tmp_path: Path) -> None:
    emit = logger.event("step", ("n",))
    for at in range(100):
        emit(at)
    assert logger.flush(20)
    found = _answer(tmp_path / "logs")
    (lane,) = found["lanes"]
    assert lane["queue_directory"] == str(tmp_path / "queues")
    assert (lane["state"], lane["reasons"]) == ("ok", [])
    assert lane["totals"]["accepted"] >= 100
    assert lane["listener"]["leader"] != "nobody"
    assert [queue["producer"] for queue in lane["queues"]] == ["here"]
    (sink,) = found["sinks"]
    assert (sink["role"], sink["state"]) == ("primary", "ok")
    assert sink["records_written"] >= 100
    assert found["books"]["balanced"] is True


def test_a_queue_directory_whose_servers_have_ended_in_order_has_no_warning(logger: Any, tmp_path: Path) -> None:
    logger.event("step", ("n",))(1)
    logger.close()
    found = _answer(tmp_path / "logs")
    assert [(lane["state"], lane["reasons"]) for lane in found["lanes"]] == [("ended", [])]
    assert found["cost"]["hot_path_s_per_request"] is None


def test_records_that_wait_for_a_listener_are_counted_whatever_the_server_was_configured_to(tmp_path: Path) -> None:
    queues = tmp_path / "queues"
    kept = {"directory": tmp_path / "logs", "queue_directory": queues, "service_name": "chat"}
    with Logger(Config(**kept, listener="external")) as logger:
        logger.event("step", ("n",))(1)
        (lane,) = lanes.Lanes().states([queues])
    assert lane["state"] == "pressured"
    assert [one["text"] for one in lane["reasons"]] == ["no process listens; 1 record waits until one does"]


def test_a_look_from_outside_creates_and_changes_nothing(logger: Any, tmp_path: Path) -> None:
    logger.event("step", ("n",))(1)
    assert logger.flush(20)
    queues = tmp_path / "queues"
    before = sorted((path.name, path.stat().st_size) for path in queues.rglob("*"))
    watch = DirectoryWatch(queues, **LIMITS)
    assert watch.look().state == "ok"
    assert watch.totals()["written"] >= 1
    assert watch.requests()["outcomes"]
    assert sorted((path.name, path.stat().st_size) for path in queues.rglob("*")) == before


def test_a_directory_that_no_process_has_used_is_named_and_left_empty(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(tmp_path)):
        DirectoryWatch(tmp_path, **LIMITS)
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_was_cut_short_is_refused_and_left_as_it_is(logger: Any, tmp_path: Path) -> None:
    (page,) = (tmp_path / "queues").glob("control-*")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / page.name).write_bytes(page.read_bytes()[:100])
    with pytest.raises(OSError, match="is not a control file"):
        DirectoryWatch(copy, **LIMITS)
    assert (copy / page.name).stat().st_size == 100
    (copy / page.name).unlink()
    (copy / page.name).symlink_to(page)
    with pytest.raises(OSError, match="is not a control file"):
        DirectoryWatch(copy, **LIMITS)


def test_a_segment_can_not_name_a_directory_that_is_no_queue_directory(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [log(1)])
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for named in ("/etc", str(tmp_path), "relative", "/proc/self/root", "", 5, "/x\x00y"):
        wrong = json.dumps({**json.loads(header), "queue_directory": named}).encode() + b"\n"
        path.write_bytes(wrong + b"".join(lines))
        assert lanes.queue_directories([tmp_path], None) == []


def test_a_directory_without_segments_has_an_error_in_words(tmp_path: Path) -> None:
    found = _answer(tmp_path)
    assert found["books"] is None
    assert f"no segments in {tmp_path}" in found["books_error"]


def _verified(monkeypatch: pytest.MonkeyPatch, program: str) -> Verified:
    made = Verified([])
    monkeypatch.setattr(made, "_command", [sys.executable, "-c", program])
    return made


def test_one_account_serves_all_who_ask_until_it_is_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = f"print('{{}}'); open({str(count)!r}, 'a').write('x')"
    verified = _verified(monkeypatch, program)
    for _ in range(5):
        assert verified.look(60)["books"] is not None
    assert count.read_text() == "x"
    monkeypatch.setattr(books, "_LEAST_AGE_S", -1.0)
    monkeypatch.setattr(books, "_SHARE", 0)
    verified.look(60)
    deadline = time.monotonic() + 60
    while count.read_text() == "x" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count.read_text() == "xx"


def test_an_account_that_takes_too_long_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "_LONGEST_S", 0.2)
    verified = _verified(monkeypatch, "import time; time.sleep(60)")
    assert verified.look(0.0)["books_running"] is True
    assert verified.look(60)["books_error"] == "verify did not end within 0.2 s"


def test_a_verify_that_fails_is_named_by_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = _verified(monkeypatch, "import sys; sys.exit('it does not work')")
    assert verified.look(60)["books_error"] == "it does not work"


def test_the_end_of_the_server_ends_its_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = _verified(monkeypatch, "import time; time.sleep(60)")
    verified.look(0.0)
    process = verified._process
    assert process is not None
    verified.close()
    assert process.wait(20) != 0


def test_an_account_of_any_size_is_bounded() -> None:
    processes = [{"gaps": [{"n": at} for at in range(600)]} for _ in range(600)]
    found = books._bounded({"processes": processes, "problems": [{}] * 700, "balanced": False})
    assert len(found["processes"]) == len(found["problems"]) == 500
    assert len(found["processes"][0]["gaps"]) == 500
    assert found["left_out"] == {"processes": 100, "problems": 200, "gaps": 60_000}
