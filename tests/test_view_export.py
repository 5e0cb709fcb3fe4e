"""Files of what is seen: a table of which no cell is computed, and the formats of `export`; each with its statement."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.view import export
from inference_logging.read.view.export import FORMATS, Exports
from inference_logging.read.view.index import Index
from inference_logging.read.view.record import Records
from inference_logging.read.view.workers import GoneError
from tests.segment_files import log, request, stamp, write_segment
from tests.view_index import Passing
from tests.view_server import Answer, Client, serving

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://example.com")']
FORMULAS += ["\n=1", " \r\n =1", "\u3000=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)"]
BODY = json.dumps({"model": "llama", "messages": [{"role": "user", "content": "hello"}]})
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}]
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
TOKENS: dict[str, Any] = {
    "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 3, "http.request.body": BODY,
    "gen_ai.input.messages": INPUT, "gen_ai.output.messages": OUTPUT,
}  # fmt: skip


def chunk(second: float, request_id: str, number: int, since_s: float) -> dict[str, Any]:
    record = log(second, request_id=request_id)
    return {**record, "event_name": "request.chunk", "chunk": number, "since_start_s": since_s}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    records = [
        *(request(10 + at, **{"tenant.id": text, "url.path": "/hostile"}) for at, text in enumerate(FORMULAS)),
        chunk(100.2, "a", 1, 0.2), chunk(100.6, "a", 2, 0.6), chunk(100.7, "b", 1, 0.1),
        request(101, request_id="a", duration_s=1.0, chunks=2, **TOKENS),
        request(102, request_id="b", duration_s=1.0, chunks=1, **TOKENS),
        request(103, "error", request_id="c", **TOKENS),
        log(104, "no request"),
    ]  # fmt: skip
    write_segment(directory, records, resource={"k8s.pod.name": "chat-0"})
    with serving([directory]) as made:
        yield made


def seq_of(at: int) -> int:
    sequence: int = request(at / 100)["seq"]
    return sequence


def download(client: Client, form: str, **query: Any) -> Answer:
    answer = client.get("api/export", format=form, q=query)
    assert answer.status == 200, answer
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["content-disposition"].startswith('attachment; filename="inference-logging-')
    return answer


def statement(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.headers["inference-logging-statement"])
    return found


def test_the_table_has_the_rows_as_seen_and_the_columns_as_chosen(client: Client) -> None:
    query = {"where": ["url.path!=/hostile"], "events": ["request"], "order": "newest"}
    columns = ["timestamp", "request_id", "outcome", "duration_s", "k8s.pod.name"]
    answer = download(client, "csv", **query, fields=columns)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    heads, *rows = csv.reader(io.StringIO(answer.body.decode(), newline=""))
    assert heads == columns
    assert rows == [
        [stamp(103), "c", "error", "0.5", "chat-0"],
        [stamp(102), "b", "ok", "1.0", "chat-0"],
        [stamp(101), "a", "ok", "1.0", "chat-0"],
    ]
    assert statement(answer) == {
        "format": "csv", "rows": 3, "complete": True, "faults": [],
        "conditions": {"where": ["url.path!=/hostile"], "events": ["request"], "order": "newest"},
    }  # fmt: skip


def test_no_cell_of_a_table_is_computed(client: Client) -> None:
    answer = download(client, "csv", where=["url.path=/hostile"], order="oldest", fields=["tenant.id", "=cmd()"])
    rows = list(csv.reader(io.StringIO(answer.body.decode(), newline="")))
    assert rows[0] == ["tenant.id", "'=cmd()"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in FORMULAS]


def test_a_negative_number_stays_a_number_and_lists_are_json(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, n=-5, names=["=a", "b"], flag=True, none=None)])
    with serving([tmp_path]) as client:
        answer = download(client, "csv", fields=["n", "names", "flag", "none", "missing"])
        assert answer.body.decode().splitlines()[1] == '-5,"[""=a"",""b""]",true,,'


def test_a_table_of_many_pages_is_whole_and_one_above_the_bound_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(tmp_path, [request(at / 100) for at in range(2500)])
    with serving([tmp_path]) as client:
        answer = download(client, "csv", fields=["seq"], order="oldest")
        assert [int(line) for line in answer.body.decode().splitlines()[1:]] == [seq_of(at) for at in range(2500)]
        monkeypatch.setattr(export, "MOST_ROWS", 1500)
        answer = download(client, "csv", fields=["seq"])
        assert len(answer.body.splitlines()) == 1501
        assert statement(answer)["complete"] is False
        assert "at most 1,500 rows" in statement(answer)["faults"][0]


def test_the_replay_file_has_the_requests_of_the_filter_with_their_bodies(client: Client) -> None:
    answer = download(client, "openai-jsonl", where=["outcome=ok", "url.path!=/hostile"])
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["custom_id"] for line in lines] == ["a", "b"]
    assert lines[0]["body"] == json.loads(BODY)
    assert lines[0]["recorded"]["k8s.pod.name"] == "chat-0"
    said = statement(answer)
    assert said["requests"]["exported"] == said["requests"]["read"] == 2
    assert said["complete"] is False  # these segments were not written by a listener
    assert said["conditions"]["where"] == ["outcome=ok", "url.path!=/hostile"]


def test_the_time_line_has_chunks_from_their_own_records(client: Client) -> None:
    answer = download(client, "perfetto", where=["url.path!=/hostile"])
    events = json.loads(answer.body)["traceEvents"]
    begun = {event["args"]["request_id"]: event["ts"] for event in events if event.get("cat") == "request"}
    chunks = sorted(event["ts"] for event in events if event.get("name") == "chunk")
    assert chunks == pytest.approx([begun["a"] + 200_000, begun["a"] + 600_000])


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("csv", "parquet")])
def test_every_format_of_export_is_there(client: Client, form: str) -> None:
    answer = download(client, form, where=["outcome=ok", "url.path!=/hostile"])
    assert len(answer.body) > 10
    assert statement(answer)["format"] == form


def test_a_wrong_format_is_named_with_the_right_ones(client: Client) -> None:
    answer = client.get("api/export", format="excel")
    assert answer.status == 400
    assert answer.json()["error"].startswith("format='excel': must be one of csv, mooncake,")


def test_the_archive_has_the_file_and_its_statement(client: Client) -> None:
    answer = client.get("api/export", format="mooncake", q={}, statement="1")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["inference-logging-mooncake.jsonl", "statement.json"]
        assert json.loads(archive.read("statement.json"))["requests"]["exported"] == 3
        assert len(archive.read("inference-logging-mooncake.jsonl").splitlines()) == 3


def test_what_is_left_out_is_counted_and_nothing_above_the_bound_is_written(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MOST_REQUESTS", 5)
    said = statement(download(client, "mooncake"))
    assert said["requests"]["read"] == 5
    assert sum(said["requests"]["left_out"].values()) == 5
    assert "a file has at most 5 requests" in said["faults"]


def test_an_export_of_a_client_that_has_left_is_given_up(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(at / 100) for at in range(2500)])
    gone = threading.Event()

    class Leaving(Passing):
        pages = 0

        def rows(self, query: bytes) -> bytes:
            self.pages += 1
            gone.set()
            return super().rows(query)

    index = Leaving([tmp_path], tmp_path / "cache")
    index.refresh(1.0)
    made: Index = index
    exports = Exports(made, Records(made, [tmp_path]), [tmp_path])
    for form in ("csv", "mooncake"):
        gone.clear()
        index.pages = 0
        with pytest.raises(GoneError):
            exports.make(form, {}, {"books": {}, "books_error": None}, gone)
        assert index.pages == 1
