"""The pages of `view` in a browser, from 100,000 requests to the slowest; what they say of the logging itself."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Locator, expect

from inference_logging import Config, Logger
from inference_logging._native import DirectoryWatch
from inference_logging.read import verify
from inference_logging.read.view import logging_itself
from inference_logging.read.view.logging_itself import Verified
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, stamp, write_segment
from tests.kit.view_browser import CLOSE_PX, Window, append, box, needs_chromium, shown, window
from tests.kit.view_server import Client, serving

MANY = 100_000
SLOWEST = 61_803
"""Where the slowest request stands."""
IDS = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "00000000000000aa"}
GAPS_US = [250_000, 1_750_000, 500_000, 500_000, 1_000_000]
QUEUED_S, PREFILL_S, DECODE_S, FIRST_S, DURATION_S, AFTER_S = 1.5, 0.5, 4.75, 2.25, 7.0, 0.5
END_S = SLOWEST * 0.01
BEGIN_S = END_S - DURATION_S - AFTER_S


def a_request(number: int) -> dict[str, Any]:
    more = {
        "tenant.id": ("acme", "globex")[number % 2],
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.output_tokens": 7,
    }
    outcome = "error" if number % 1000 == 7 else "ok"
    fields = {"duration_s": 0.05 + number % 97 / 1000, **more}
    return {**request(number * 0.01, outcome), "request_id": f"{number + 4096:016x}", **fields}


def the_slowest() -> dict[str, Any]:
    times = {"duration_s": DURATION_S, "after_response_s": AFTER_S, "gen_ai.response.time_to_first_chunk": FIRST_S}
    engine = {"engine.queued_s": QUEUED_S, "engine.prefill_s": PREFILL_S, "engine.decode_s": DECODE_S}
    chunks = {"chunks": len(GAPS_US) + 1, "chunk_gap_max_us": max(GAPS_US), "chunk_gaps_us": GAPS_US}
    return {**request(END_S, "error"), **IDS, **times, **engine, **chunks, "exception.type": "app.Overloaded",
            "exception.message": "too much", "tenant.id": "acme"}  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    records: list[dict[str, Any]] = [a_request(number) for number in range(MANY)]
    beside = {**request(BEGIN_S + 1.25), "duration_s": 1.0, "request_id": "00000000000000bb"}
    running = {**log(BEGIN_S + 2.0), "event_name": "engine.stats", "engine.running": 3, "engine.waiting": 1}
    records[SLOWEST] = the_slowest()
    inside = log(BEGIN_S + 0.75, "thinking", **IDS)
    write_segment(directory, [*records[: SLOWEST - 200], inside, running, beside, *records[SLOWEST - 200 :]])
    return directory


@pytest.fixture(scope="module")
def client(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with shown([logs], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, client: Client) -> Iterator[Window]:
    with window(browser, client.serving.url) as made:
        yield made


def middle(found: Locator) -> float:
    begin, end = box(found)
    return (begin + end) / 2


@pytest.mark.servers
@needs_chromium
def test_the_slowest_of_100_000_is_found_by_clicks_and_drawn_as_recorded(page: Window) -> None:
    page.open()
    page.wait_for_count(MANY + 1)
    page.page.get_by_role("button", name="Duration").click()
    first = page.rows().first
    expect(first).to_contain_text("7 s")
    first.locator(".c-duration").click()
    page.page.get_by_role("link", name="Page", exact=True).click()
    timeline = page.page.locator(".timeline-plot")
    begin, end = box(timeline.locator("[data-part=request] rect"))
    per_s = (end - begin) / DURATION_S

    def at(seconds: float) -> Any:
        return pytest.approx(begin + seconds * per_s, abs=CLOSE_PX)

    borders = (0.0, QUEUED_S, QUEUED_S + PREFILL_S, QUEUED_S + PREFILL_S + DECODE_S)
    for part, (left, right) in zip(("queue", "prefill", "decode"), itertools.pairwise(borders), strict=True):
        assert box(timeline.locator(f"[data-part={part}] rect")) == (at(left), at(right)), part
    assert box(timeline.locator("[data-part=after] rect")) == (at(DURATION_S), at(DURATION_S + AFTER_S))
    sent = [FIRST_S + sum(GAPS_US[:number]) / 1e6 for number in range(len(GAPS_US) + 1)]
    ticks = timeline.locator("path.tick")
    expect(ticks).to_have_count(len(sent))
    assert [middle(ticks.nth(number)) for number in range(len(sent))] == [at(seconds) for seconds in sent]
    assert middle(timeline.locator("[data-mark=log] circle")) == at(0.75)
    assert middle(timeline.locator("[data-mark=exception] path")) == at(DURATION_S)
    # What ran beside it from second 0.25 to second 1.25; a hundred others a second did, too.
    neighbours = [box(one) for one in timeline.locator(".neighbour").all()]
    assert (at(0.25), at(1.25)) in neighbours


@pytest.mark.servers
@needs_chromium
def test_a_click_on_a_value_filters_and_the_back_button_takes_it_back(page: Window) -> None:
    page.open()
    page.rows().first.locator(".value", has_text="globex").click()
    expect(page.page.locator(".chip")).to_have_count(1)
    assert page.chips() == ["tenant.id = globex"]
    page.settle()
    page.wait_for_count(MANY // 2 - 1)  # the slowest is of acme
    page.rows().first.locator(".c-outcome .value").click(modifiers=["Shift"])
    expect(page.page.locator(".chip")).to_have_count(2)
    assert parse_qs(page.hash.partition("?")[2])["where"] == ["tenant.id=globex", "outcome!=ok"]
    page.settle()
    page.wait_for_count(MANY // 1000)
    page.page.go_back()
    page.page.go_back()
    expect(page.page.locator(".chip")).to_have_count(0)


@pytest.mark.servers
@needs_chromium
def test_the_whole_state_stands_in_the_url(page: Window, browser: Browser) -> None:
    page.open()
    page.page.locator("#where").fill("duration_s>0.1")
    page.page.keyboard.press("Enter")
    page.page.locator("#text").fill("tiny")
    page.page.get_by_role("button", name="Tokens out").click()
    page.page.get_by_role("button", name="Range of time").click()
    page.page.get_by_label("From", exact=True).fill(stamp(10)[:19])
    page.page.get_by_label("To", exact=True).fill(stamp(40)[:19])  # short: a search in the text has a bound of time
    page.page.get_by_role("button", name="Apply").click()
    page.page.get_by_role("button", name="Choose columns").click()
    page.page.get_by_label("Pod", exact=True).uncheck()
    page.page.keyboard.press("Escape")
    expect(page.page.get_by_role("columnheader", name="Pod")).to_have_count(0)
    page.page.wait_for_url("**text=tiny**")
    page.settle()
    page.rows().nth(2).locator(".c-time").click()
    page.settle()
    with window(browser, page.page.url.partition("#")[0]) as other:
        other.open(f"#{page.hash}")
        assert other.hash == page.hash
        assert other.chips() == page.chips() == ["duration_s > 0.1"]
        assert other.count() == page.count() < MANY
        for place in ("#where", "#text"):
            assert other.page.locator(place).input_value() == page.page.locator(place).input_value()
        for place in (".grid-head", ".request-head h2", ".request-head p", ".range .tool-label"):
            assert other.page.locator(place).inner_text() == page.page.locator(place).inner_text()
        expect(other.page.get_by_role("columnheader", name="Tokens out")).to_have_attribute("aria-sort", "descending")


@pytest.mark.servers
@needs_chromium
def test_what_the_server_refuses_stands_on_the_page_in_its_words(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as refused:
        refused.open("#/requests?where=no+condition")
        expect(refused.page.get_by_role("alert")).to_contain_text("no condition")
        refused.faults.clear()  # the browser's own line about an answer of 400


@pytest.mark.servers
@needs_chromium
def test_a_folder_without_records_says_so(browser: Browser, tmp_path: Path) -> None:
    with shown([tmp_path], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open()
        expect(page.page.locator(".empty")).to_contain_text("No requests in this folder yet.")
        page.open("#/overview")
        expect(page.page.locator(".empty")).to_contain_text("No request matches.")
        page.open("#/request/none-20261121T050000.000Z-00000000deadbeef-000001.jsonl%3A9")
        expect(page.page.locator(".empty")).to_contain_text("This record is gone.")
        page.faults.clear()  # the browser's own line about an answer of 404


@pytest.mark.servers
@needs_chromium
def test_the_live_list_shows_what_comes_and_counts_what_waits(browser: Browser, tmp_path: Path) -> None:
    live = write_segment(tmp_path, [request(1)], sealed=False)
    with shown([tmp_path], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.open()
        expect(page.page.locator(".list-state [role=status]")).to_have_text("live")
        append(live, [request(2), request(3)])
        expect(page.rows()).to_have_count(3)
        page.page.keyboard.press("p")
        append(live, [request(4)])
        expect(page.page.get_by_role("button", name="1 new")).to_be_visible()
        expect(page.rows()).to_have_count(3)
        page.page.keyboard.press("p")
        expect(page.rows()).to_have_count(4)
        assert [one[:12] for one in page.rows().all_inner_texts()] == [
            f"05:00:0{second}.000" for second in (4, 3, 2, 1)
        ]


LIMITS = logging_itself._limits()


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


@pytest.mark.servers
def test_records_that_wait_for_a_listener_are_counted_whatever_the_server_was_configured_to(tmp_path: Path) -> None:
    queues = tmp_path / "queues"
    kept = {"directory": tmp_path / "logs", "queue_directory": queues, "service_name": "chat"}
    with Logger(Config(**kept, listener="external")) as logger:
        logger.event("step", ("n",))(1)
        (lane,) = logging_itself.Lanes().states([queues])
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
        assert logging_itself.queue_directories([tmp_path], None) == []


def test_a_directory_without_segments_has_an_error_in_words(tmp_path: Path) -> None:
    found = _answer(tmp_path)
    assert found["books"] is None
    assert f"no segments in {tmp_path}" in found["books_error"]


def _verified(monkeypatch: pytest.MonkeyPatch, program: str) -> Verified:
    monkeypatch.setattr(verify, "COMMAND", [sys.executable, "-c", program])
    return Verified([])


def test_one_account_serves_all_who_ask_until_it_is_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = f"print('{{}}'); open({str(count)!r}, 'a').write('x')"
    verified = _verified(monkeypatch, program)
    for _ in range(5):
        assert verified.look(60)["books"] is not None
    assert count.read_text() == "x"
    monkeypatch.setattr(logging_itself, "_LEAST_AGE_S", -1.0)
    monkeypatch.setattr(logging_itself, "_SHARE", 0)
    verified.look(60)
    deadline = time.monotonic() + 60
    while count.read_text() == "x" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count.read_text() == "xx"


def test_an_account_that_takes_too_long_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_itself, "_LONGEST_S", 0.2)
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
    found = logging_itself._bounded({"processes": processes, "problems": [{}] * 700, "balanced": False})
    assert len(found["processes"]) == len(found["problems"]) == 500
    assert len(found["processes"][0]["gaps"]) == 500
    assert found["left_out"] == {"processes": 100, "problems": 200, "gaps": 60_000}
