"""What the server of `view` answers: progress, rows, records with all that belongs to them; and that it goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from inference_logging.read.table.table import Table
from inference_logging.read.view.workers import BusyError, GoneError, Refresher, Workers
from tests.kit.segment_files import BOOT_ID, log, request, write_segment
from tests.kit.support import wait_until
from tests.kit.view_server import Client, serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
IDS = {"trace_id": TRACE, "request_id": "00000000000000aa"}
RESOURCE = {"service.name": "chat", "k8s.pod.name": "chat-0"}


def stats(second: float, **fields: Any) -> dict[str, Any]:
    return {**log(second), "event_name": "engine.stats", "engine.running": 3, **fields}


def chunk(second: float, number: int) -> dict[str, Any]:
    return {**log(second, **IDS), "event_name": "request.chunk", "chunk": number, "since_start_s": second - 100}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    records = [
        stats(50), stats(95, **{"engine.waiting": 7}), stats(108), stats(500),
        request(98), request(101, duration_s=0.5), log(100.2, "first", **IDS), log(105, "of another", trace_id=TRACE),
        chunk(101, 1), chunk(102, 2), log(109, "last", **IDS, attributes={"n": 1}),
        request(110, **IDS, duration_s=10.0, **{"http.request.body": "{}"}),
        request(112, duration_s=5.0), request(130, duration_s=1.0),
        request(111, duration_s=5.0, pid=2, boot_id="00000000cafebabe"),
    ]  # fmt: skip
    write_segment(directory, records, resource=RESOURCE, prefix="chat")
    with serving([directory]) as made:
        wait_until(lambda: made.get("api/progress").json()["done"], "the index")
        yield made


@pytest.fixture(scope="module")
def whole(client: Client) -> dict[str, Any]:
    key = client.rows(where=["request_id=00000000000000aa"], events=["request"])[0]["key"]
    answer = client.get("api/record", key=key)
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def test_meta_names_what_is_shown(client: Client) -> None:
    meta = client.get("api/meta").json()
    assert meta["services"] == ["chat"]
    assert meta["pods"] == ["chat-0"]
    assert meta["directories"] == [str(path) for path in client.view.content.directories]
    assert meta["progress"]["rows"] == 15
    assert abs(int(meta["now_ns"]) / 1e9 - time.time()) < 3600


def test_rows_aggregates_and_values_are_those_of_the_index(client: Client) -> None:
    rows = client.rows(events=["request"], order="-duration_s", limit=2, fields=["duration_s"])
    assert [row["duration_s"] for row in rows] == [10.0, 5.0]
    found = client.get("api/aggregate", q={"events": ["request"], "buckets": 4}).json()
    assert sum(found["count"]) == 6
    values = client.get("api/values", q={"field": "event_name"}).json()
    assert {one["value"]: one["count"] for one in values}["engine.stats"] == 4
    assert client.get("api/progress").json()["done"] is True


def test_a_record_comes_whole_with_its_process_and_the_meaning_of_its_fields(whole: dict[str, Any]) -> None:
    assert whole["record"]["http.request.body"] == "{}"
    assert whole["resource"] == RESOURCE
    assert int(whole["end_ns"]) - int(whole["begin_ns"]) == 10_000_000_000
    meanings = {one["name"]: one for one in whole["fields"]}
    assert meanings["duration_s"]["meaning"] == "Seconds until the last part of the answer."
    assert meanings["k8s.pod.name"]["meaning"] == "Name of the pod."


def test_records_made_inside_a_request_are_with_it_in_their_order(whole: dict[str, Any]) -> None:
    assert [one["message"] for one in whole["logs"]] == ["first", "last"]
    assert whole["logs"][1]["attributes"] == {"n": 1}
    assert [one["chunk"] for one in whole["chunks"]] == [1, 2]


def test_neighbours_are_requests_of_the_same_process_at_the_same_time(whole: dict[str, Any]) -> None:
    beside = whole["neighbours"]["requests"]
    assert sorted(row["duration_s"] for row in beside) == [0.5, 5.0]
    assert {row["boot_id"] for row in beside} == {BOOT_ID}
    assert [one.get("engine.waiting") for one in whole["neighbours"]["stats"]] == [7, None]


def test_a_record_of_no_request_has_those_of_its_trace(client: Client) -> None:
    key = next(row["key"] for row in client.rows(events=["log"], trace=TRACE) if "request_id" not in row)
    found = client.get("api/record", key=key).json()
    assert found["record"]["message"] == "of another"
    assert [one["message"] for one in found["logs"]] == []


@pytest.mark.parametrize("key", ["", "x", "x:y", "../x:1", "x:1:2", "x:-1", "a/b:1", "x" * 300 + ":1"])
def test_a_wrong_key_is_named(client: Client, key: str) -> None:
    answer = client.get("api/record", key=key)
    assert answer.status == 400
    assert answer.json()["error"].startswith("key=")


def test_a_record_that_is_gone_is_not_found(client: Client) -> None:
    answer = client.get("api/record", key="chat-none.jsonl:12")
    assert answer.status == 404
    assert "no such record" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("rows", "the parameters are q"), ("aggregate", "the parameters are q"), ("values", "the parameters are q"),
        ("live", "the parameters are q"), ("compare", "the parameters are a, b"), ("meta", "there are no parameters"),
        ("export", "the parameters are q, format, statement"), ("logging", "there are no parameters"),
        ("condition", "the parameters are text"), ("record", "the parameters are key"),
    ],
)  # fmt: skip
def test_a_parameter_that_would_do_nothing_is_refused(client: Client, path: str, known: str) -> None:
    answer = client.get(f"api/{path}", where="outcome=error")
    assert (answer.status, answer.json()["error"]) == (400, f"where='outcome=error': unknown, {known}")


@pytest.mark.parametrize("path", ["rows", "aggregate", "values", "live"])
def test_a_wrong_question_is_a_400_that_names_parameter_and_value(client: Client, path: str) -> None:
    answer = client.get(f"api/{path}", q={"limit": -5, "field": "outcome", "where": ["nonsense"]})
    assert answer.status == 400
    assert "nonsense" in answer.json()["error"] or "q.limit=-5" in answer.json()["error"]
    assert client.rows(limit=1)


@pytest.mark.parametrize("path", ["rows", "aggregate", "values", "live", "compare", "export"])
def test_a_condition_on_a_field_that_no_record_has_is_a_400_that_names_the_nearest(client: Client, path: str) -> None:
    sides = ("a", "b") if path == "compare" else ("q",)
    more = {"format": "csv"} if path == "export" else {}
    question = {"where": ["outcome=ok", "outcom=ok"], **({"field": "outcome"} if path == "values" else {})}
    answer = client.get(f"api/{path}", **dict.fromkeys(sides, question), **more)
    assert (answer.status, answer.json()["error"]) == (400, "no record has the field 'outcom'; the nearest: outcome")
    assert client.rows(where=["attributes.n=1", "outcome!=ok"]), "a field of the application's own is known"


def test_without_records_no_field_is_unknown(tmp_path: Path) -> None:
    with serving([tmp_path]) as made:
        assert made.rows(where=["attributes.n=1"]) == []


def test_a_question_of_any_length_gets_an_answer_and_the_next_one_too(client: Client) -> None:
    for length in (10_000, 33_000, 60_000, 200_000, 2_000_000):
        with_long_value = client.target("api/rows", q={"text": "x" * length})
        try:
            answer = client.send(with_long_value)
            assert answer.status == 400, length
        except (ConnectionResetError, BrokenPipeError):
            assert length > 64_000  # refused before it was read
        assert client.rows(limit=1)


def test_what_the_index_finds_wrong_is_a_400(client: Client, tmp_path: Path) -> None:
    class Refusing(Table):
        def rows(self, query: Any) -> Any:
            raise ValueError("order=-nothing: not a field with an order")

    directories = client.view.content.directories
    with serving(directories, Refusing(directories, None, tmp_path)) as other:
        answer = other.get("api/rows", q={"order": "-nothing"})
        assert (answer.status, answer.json()) == (400, {"error": "q: order=-nothing: not a field with an order"})


def test_a_fault_of_ours_is_a_500_without_details_and_the_server_goes_on(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(Table):
        def aggregate(self, query: Any) -> Any:
            raise RuntimeError("secret detail")

    directories = client.view.content.directories
    with serving(directories, Broken(directories, None, tmp_path)) as other:
        answer = other.get("api/aggregate")
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert other.rows(limit=1)
    assert "secret detail" in capfd.readouterr().err


def test_the_index_is_refreshed_until_the_end_also_after_an_error(tmp_path: Path) -> None:
    class Faulty(Table):
        looks = 0

        def refresh(self, budget_s: float) -> dict[str, Any]:
            self.looks += 1
            if self.looks == 1:
                raise OSError("disk is gone")
            return super().refresh(budget_s)

    index = Faulty([tmp_path], None, tmp_path / "cache")
    refresher = Refresher(index)
    refresher.start()
    deadline = time.monotonic() + 30
    while refresher.looks < 3 and time.monotonic() < deadline:
        if refresher.looks == 1:
            assert refresher.progress["problems"] == ["the index can't be refreshed: disk is gone"]
        time.sleep(0.01)
    assert refresher.progress["problems"] == []
    assert refresher.close(20)
    assert index.looks >= 3


def _request(*messages: dict[str, Any], leaves: asyncio.Event | None = None) -> Request:
    waiting = list(messages)

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        if leaves is None:
            await asyncio.Event().wait()
        else:
            await leaves.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "headers": []}, receive)


def test_work_for_a_client_that_leaves_is_given_up() -> None:
    async def scenario() -> None:
        workers, leaves, seen = Workers("test", 1), asyncio.Event(), threading.Event()

        def work(given_up: threading.Event) -> None:
            seen.set()
            assert given_up.wait(20)

        task = asyncio.ensure_future(workers.run(_request(leaves=leaves), work))
        assert await asyncio.get_running_loop().run_in_executor(None, seen.wait, 20)
        leaves.set()
        with pytest.raises(GoneError):
            await task
        assert await workers.run(_request(), lambda _: 5) == 5
        workers.close()

    asyncio.run(scenario())


def test_too_much_work_is_refused_and_later_work_is_taken() -> None:
    async def scenario() -> None:
        workers, goes_on = Workers("test", 1, most_waiting=1), threading.Event()
        tasks = [asyncio.ensure_future(workers.run(_request(), lambda _: goes_on.wait(20))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await workers.run(_request(), lambda _: True)
        goes_on.set()
        assert await asyncio.gather(*tasks) == [True, True]
        assert await workers.run(_request(), lambda _: "again") == "again"
        workers.close()

    asyncio.run(scenario())


def test_a_question_may_be_about_one_directory(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write_segment(before, [request(1, duration_s=1.0)])
    write_segment(after, [request(2, duration_s=2.0)], second=2)
    with serving([before, after]) as client:
        assert len(client.rows()) == 2
        assert [row["duration_s"] for row in client.rows(directories=[str(after)])] == [2.0]
        assert client.get("api/meta").json()["directories"] == [str(before), str(after)]


def test_numbers_of_64_bits_keep_every_digit(tmp_path: Path) -> None:
    write_segment(tmp_path, [{**request(1), "timestamp": "2026-11-21T05:00:01.123456789Z"}])
    with serving([tmp_path]) as client:
        row = orjson.loads(client.get("api/rows").body)["rows"][0]
        assert row["timestamp_ns"].endswith("123456789")
