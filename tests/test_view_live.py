"""The live stream of `view`: each new record once, in few messages, until the client leaves or the server ends."""

from __future__ import annotations

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

from inference_logging.read.view import live
from inference_logging.read.view.arrivals import Arrivals
from tests.segment_files import log, request, write_segment
from tests.support import wait_until
from tests.view_server import Client, serving


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


def append(path: Path, *records: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(orjson.dumps(record) + b"\n" for record in records))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return write_segment(tmp_path, [request(1)], sealed=False)


def test_each_new_record_comes_once_also_one_with_an_older_time(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        for second in (50, 40, 60, 2, 61):
            append(segment, request(second))
            time.sleep(0.05)
        rows = opened.rows(5)
        assert [row["seq"] for row in rows] == [50_000, 40_000, 60_000, 2_000, 61_000]
        write_segment(segment.parent, [log(70)], number=2, second=70, sealed=False)
        append(segment, request(71))
        assert sorted(row["seq"] for row in opened.rows(2)) == [70_000, 71_000]


def test_only_records_that_fulfil_the_question_come(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client, where=["outcome=error"], events=["request"]) as opened:
        append(segment, request(2), log(3), request(4, "error"), request(5), request(6, "error"))
        assert [row["seq"] for row in opened.rows(2)] == [4000, 6000]


def test_more_than_a_message_holds_are_counted_as_skipped(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        append(segment, *(request(10 + at / 100) for at in range(1200)))
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
            append(segment, request(100 + at))
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
        append(segment, request(9))
        assert next(content["rows"] for name, content in events if name == "progress") == 2


def test_the_server_ends_at_once_with_its_streams(segment: Path) -> None:
    with serving([segment.parent]) as client, stream(client) as opened:
        client.serving.stop()
        assert [name for name, _ in opened.events() if name == "rows"] == []  # the stream has ended
