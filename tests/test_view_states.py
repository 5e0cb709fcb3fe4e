"""The pages of `view` in a browser where data are rare: records of chunks, a history, an index under construction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.segment_files import log, request, write_segment
from tests.view_browser import append, needs_chromium, shown, window
from tests.view_index import Passing
from tests.view_server import Client, serving

pytestmark = [pytest.mark.servers, needs_chromium]

IDS = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "00000000000000aa"}
BEGIN_S, DURATION_S, FIRST_S = 10.0, 8.0, 1.0
SENT_S = (1.0, 1.5, 3.25, 3.5, 7.75)
"""When the chunks left, by their own records."""
CLOSE_PX = 1.0


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


def box(found: Locator) -> tuple[float, float]:
    """Return where an element begins and ends, in pixels from the left."""
    place = found.bounding_box()
    assert place is not None
    return place["x"], place["x"] + place["width"]


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


class Held(Passing):
    """Has indexed a quarter of its bytes, and no row, until it is let go."""

    def __init__(self, directory: Path, cache: Path) -> None:
        super().__init__([directory], cache)
        self.may_go_on = threading.Event()

    def refresh(self, budget_s: float) -> bytes:
        if self.may_go_on.is_set():
            return super().refresh(budget_s)
        counts = {"segments": 4, "indexed_segments": 1, "bytes": 8 << 20, "indexed_bytes": 2 << 20}
        return orjson.dumps({**counts, "rows": 0, "live_rows": 0, "done": False, "problems": []})


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
