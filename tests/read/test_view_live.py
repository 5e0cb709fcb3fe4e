"""Pages that follow a directory: new records, the state of the logging, empty and broken places."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, expect

from inference_logging.read.table.table import Table
from inference_logging.read.view import live
from inference_logging.read.view.live import Arrivals
from tests.kit.segment_files import log, request, write_segment
from tests.kit.support import wait_until
from tests.kit.view_browser import CLOSE_PX, append, box, needs_chromium, shown, window
from tests.kit.view_server import Client, serving


class Stream:
    """What a browser's EventSource sees."""

    def __init__(self, connection: socket.socket) -> None:
        """Read the head of the answer."""
        self.deadline_s = time.monotonic() + 60
        self._lines = connection.makefile("rb")
        self.status = int(self._lines.readline().split()[1])
        self.headers = {}
        while (line := self._lines.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            self.headers[name] = value

    def events(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the events: name and content; the content of other lines is their text."""
        name = ""
        for line in self._content():
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                yield name, orjson.loads(line[6:])
            elif line:
                yield "", line.decode()

    def _content(self) -> Iterator[bytes]:
        rest = b""
        while size := int(self._lines.readline().strip() or b"0", 16):
            *lines, rest = (rest + self._lines.read(size)).split(b"\n")
            self._lines.readline()
            yield from lines

    def rows(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of the next messages until there are so many."""
        found: list[dict[str, Any]] = []
        for name, content in self.events():
            assert time.monotonic() < self.deadline_s, found
            if name == "rows":
                found += content["rows"]
                if len(found) >= number:
                    break
        return found


@contextmanager
def stream(client: Client, **query: Any) -> Iterator[Stream]:
    with client.connect(client.target("api/live", q=query), {"Sec-Fetch-Site": "same-origin"}) as connection:
        opened = Stream(connection)
        assert opened.status == 200
        assert opened.headers["content-type"].startswith("text/event-stream")
        events = opened.events()
        assert next(events) == ("", "retry: 1000")
        assert next(events)[0] == "progress"  # from then on it knows its position
        yield opened


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return write_segment(tmp_path, [request(1)], sealed=False)


def test_each_new_record_comes_once_also_one_with_an_older_time(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        for second in (50, 40, 60, 2, 61):
            append(segment, [request(second)])
            time.sleep(0.05)
        rows = opened.rows(5)
        assert [row["seq"] for row in rows] == [50_000, 40_000, 60_000, 2_000, 61_000]
        write_segment(segment.parent, [log(70)], number=2, second=70, sealed=False)
        append(segment, [request(71)])
        assert sorted(row["seq"] for row in opened.rows(2)) == [70_000, 71_000]


def test_only_records_that_fulfil_the_question_come(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client, where=["outcome=error"], events=["request"]) as opened:
        append(segment, [request(2), log(3), request(4, "error"), request(5), request(6, "error")])
        assert [row["seq"] for row in opened.rows(2)] == [4000, 6000]


def test_more_than_a_message_holds_are_counted_as_skipped(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        append(segment, [request(10 + at / 100) for at in range(1200)])
        shown = skipped = 0
        for name, content in opened.events():
            if name == "rows":
                assert len(content["rows"]) <= live.MOST_ROWS
                shown, skipped = shown + len(content["rows"]), skipped + content["skipped"]
                if shown + skipped >= 1200:
                    break
        assert shown + skipped == 1200
        assert skipped > 0


def test_messages_are_few_however_many_records_come(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        looks: list[int] = []
        for at in range(40):
            append(segment, [request(100 + at)])
            time.sleep(0.02)
        for name, content in opened.events():
            if name == "rows":
                looks.append(len(content["rows"]))
                if sum(looks) == 40:
                    break
        # Forty writes in 0.8 s: one message for each quarter of a second, however slow this machine is.
        assert len(looks) < 20


def test_the_stream_ends_when_its_client_leaves_and_the_server_goes_on(segment: Path) -> None:
    with serving([segment.parent]) as client:
        for _ in range(3):
            with stream(client):
                assert len(client.view.live._seats) == 1
            wait_until(lambda: not client.view.live._seats, "the place to be free")
            assert client.rows(limit=1)


def test_more_streams_than_there_may_be_are_refused(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    with serving([segment.parent]) as client, stream(client):
        refused = client.get("api/live")
        assert refused.status == 503
        assert "ask again" in json.loads(refused.body)["error"]


def test_streams_that_are_asked_for_at_once_are_counted_before_they_begin(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 3)
    every_one_waits = threading.Event()

    class Waiting(Arrivals):
        def __init__(self, *arguments: Any) -> None:
            every_one_waits.wait(30)
            super().__init__(*arguments)

    monkeypatch.setattr("inference_logging.read.view.app.Arrivals", Waiting)
    with serving([segment.parent]) as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(stream_status, client) for _ in range(8)]
        wait_until(lambda: sum(one.done() for one in asked) == 5, "those without a place to be refused")
        every_one_waits.set()
        assert sorted(one.result() for one in asked) == [200] * 3 + [503] * 5


def stream_status(client: Client) -> int:
    with client.connect(client.target("api/live", q={}), {"Sec-Fetch-Site": "same-origin"}) as connection:
        return Stream(connection).status


def test_progress_comes_when_it_changes_and_a_ping_when_nothing_does(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_PING_S", 0.1)
    monkeypatch.setattr(live, "_PROGRESS_S", 0.0)
    with serving([segment.parent]) as client, stream(client, where=["outcome=nothing"]) as opened:
        events = opened.events()
        assert next(events) == ("", ": ping")
        append(segment, [request(9)])
        assert next(content["rows"] for name, content in events if name == "progress") == 2


def test_the_server_ends_at_once_with_its_streams(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        client.serving.stop()
        assert [name for name, _ in opened.events() if name == "rows"] == []  # the stream has ended


IDS = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "00000000000000aa"}
BEGIN_S, DURATION_S, FIRST_S = 10.0, 8.0, 1.0
SENT_S = (1.0, 1.5, 3.25, 3.5, 7.75)
"""When the chunks left, by their own records."""


def event(second: float, name: str, severity: str = "INFO", **fields: Any) -> dict[str, Any]:
    return {**log(second), "event_name": name, "severity_text": severity, **fields}


def chunk(number: int, since_start_s: float) -> dict[str, Any]:
    fields = {**IDS, "chunk": number, "bytes": 40, "since_start_s": since_start_s}
    return {**event(BEGIN_S + since_start_s, "request.chunk"), **fields}


def the_stream() -> dict[str, Any]:
    # Its own gaps say something else: records of chunks go before them.
    times = {"duration_s": DURATION_S, "gen_ai.response.time_to_first_chunk": FIRST_S, "chunks": len(SENT_S)}
    return {**request(BEGIN_S + DURATION_S), **IDS, **times, "chunk_gaps_us": [1_000_000, 1_000_000]}


HISTORY = (
    event(1, "server.started", vllm__version="0.11"),
    event(2, "sink.failed", "WARN", sink="file", error="ENOSPC"),
    event(3, "sink.recovered", sink="file"),
    event(4, "process.ended", "ERROR", how="died"),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    logs = tmp_path_factory.mktemp("logs")
    chunks = [chunk(number + 1, at) for number, at in enumerate(SENT_S)]
    write_segment(logs, [*HISTORY, *chunks, the_stream()])
    with shown([logs], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.mark.servers
@needs_chromium
def test_a_tick_stands_where_the_record_of_its_chunk_says(browser: Browser, client: Client) -> None:
    (row,) = client.rows(events=["request"])
    with window(browser, client.serving.url) as page:
        page.open(f"#/request/{row['key'].replace(':', '%3A')}")
        timeline = page.page.locator(".timeline-plot")
        ticks = timeline.locator("path.tick")
        expect(ticks).to_have_count(len(SENT_S))
        begin, end = box(timeline.locator("[data-part=request] rect"))
        drawn = [sum(box(ticks.nth(number))) / 2 for number in range(len(SENT_S))]
        per_s = (end - begin) / DURATION_S
        assert drawn == [pytest.approx(begin + seconds * per_s, abs=CLOSE_PX) for seconds in SENT_S]


@pytest.mark.servers
@needs_chromium
def test_the_history_of_the_logging_is_a_table_with_the_newest_first(browser: Browser, client: Client) -> None:
    with window(browser, client.serving.url) as page:
        page.open("#/logging")
        rows = page.page.get_by_role("region", name="History").locator("tbody tr")
        expect(rows).to_have_count(len(HISTORY))
        for number, record in enumerate(reversed(HISTORY)):
            row, second = rows.nth(number), record["timestamp"][11:19]
            expect(row.locator("th")).to_contain_text(second)
            expect(row.locator(f".s-{record['severity_text']}")).to_have_text(record["event_name"])
        expect(rows.nth(2)).to_contain_text("sink=file error=ENOSPC")


class Held(Table):
    """Has indexed a quarter of its bytes, and no row, until it is let go."""

    def __init__(self, directory: Path, cache: Path) -> None:
        super().__init__([directory], None, cache)
        self.may_go_on = threading.Event()

    def refresh(self, budget_s: float) -> dict[str, Any]:
        if self.may_go_on.is_set():
            return super().refresh(budget_s)
        counts = {"segments": 4, "indexed_segments": 1, "bytes": 8 << 20, "indexed_bytes": 2 << 20}
        return {**counts, "rows": 0, "live_rows": 0, "done": False, "problems": []}


@pytest.mark.servers
@needs_chromium
def test_an_index_under_construction_shows_how_far_it_is_until_it_is_done(browser: Browser, tmp_path: Path) -> None:
    write_segment(tmp_path / "logs", [request(1), request(2)])
    held = Held(tmp_path / "logs", tmp_path / "cache")
    with serving([tmp_path / "logs"], held) as client, window(browser, client.serving.url) as page:
        page.open("#/requests?order=oldest")
        banner = page.page.locator(".progress-index")
        expect(banner).to_have_text("Indexing 2 MiB of 8 MiB")
        expect(banner).to_have_attribute("title", "1 of 4 segments, 2 MiB of 8 MiB")
        assert banner.locator("progress").evaluate("bar => bar.position") == 0.25
        expect(page.page.locator(".empty")).to_contain_text("the index is still being built")
        held.may_go_on.set()
        expect(banner).to_have_count(0)
        page.open()
        expect(page.rows()).to_have_count(2)


@pytest.mark.servers
@needs_chromium
def test_a_live_list_that_lost_its_server_connects_again_and_misses_nothing(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = write_segment(tmp_path / "logs", [request(1)], sealed=False)
    with shown([tmp_path / "logs"], tmp_path / "cache") as client, window(browser, client.serving.url) as page:
        page.page.clock.install()
        page.open()
        state = page.page.locator(".list-state [role=status]")
        expect(state).to_have_text("live")
        streams = client.view.live
        with monkeypatch.context() as full:
            # The stream ends, and the next one is refused by 503: the browser gives up then, and the page does not.
            full.setattr(streams, "is_full", lambda: True)
            with page.page.expect_response(lambda answer: answer.status == 503):
                streams.close()
            streams._closed = asyncio.Event()
            expect(state).to_have_text("connection lost, trying again")
            append(live, [request(2)])
        page.page.clock.fast_forward(3000)  # the page's own pause
        expect(state).to_have_text("live")
        expect(page.rows()).to_have_count(2)
        append(live, [request(3)])
        expect(page.rows()).to_have_count(3)
        page.faults.clear()  # the browser's own line about an answer of 503
