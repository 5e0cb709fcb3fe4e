"""The table of records: it answers what Python finds in the lines; its files in the cache are made again if harmed."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
import zstandard

from inference_logging.read.segments import segments
from inference_logging.read.stats.counting import count
from inference_logging.read.table.columns import KINDS
from inference_logging.read.table.table import Table
from tests.kit.segment_files import BEGUN, log, request, write_segment
from tests.read.table_questions import RESOURCES, ask, asked, found, lines_of, open_table


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    many = [
        request(
            n / 100, "ok" if n % 50 else "error", duration_s=n / 1000 + 0.0005, chunks=n % 90,
            **{"tenant.id": f"t{n % 5}", "gen_ai.usage.output_tokens": n % 700, "adjusted_count": 1.0 + n % 2},
        )
        for n in range(4000)
    ]  # fmt: skip
    write_segment(directory, many, resource=RESOURCES)
    write_segment(directory, [log(50, f"note {n}") for n in range(30)], number=2, second=50, compressed=True)
    write_segment(directory, [request(60 + n, duration_s=9.5) for n in range(20)], number=3, second=60, sealed=False)
    return directory


@pytest.fixture(name="table")
def _table(logs: Path, tmp_path: Path) -> Table:
    return open_table(logs, tmp_path / "cache")


def python_records(logs: Path) -> list[dict[str, Any]]:
    from inference_logging.segments import read_records

    return list(read_records(logs))


def test_orders_and_pages_are_those_of_sorting(logs: Path, table: Table) -> None:
    durations = sorted((r["duration_s"] for r in python_records(logs) if "duration_s" in r), reverse=True)
    query: dict[str, Any] = {"order": "-duration_s", "limit": 700, "fields": ["duration_s"]}
    pages = []
    answer = ask(table, "rows", **query)
    pages += answer["rows"]
    while answer["next"]:
        answer = ask(table, "rows", **query, after=answer["next"])
        pages += answer["rows"]
    assert [row["duration_s"] for row in pages] == durations
    newest = ask(table, "rows", limit=1000)["rows"]
    stamps = [int(row["timestamp_ns"]) for row in newest]
    assert stamps == sorted(stamps, reverse=True)
    oldest = ask(table, "rows", limit=1000, order="oldest")["rows"]
    assert [int(row["timestamp_ns"]) for row in oldest] == sorted(int(row["timestamp_ns"]) for row in oldest)
    assert not {row["key"] for row in newest} & {row["key"] for row in oldest}


def test_rows_have_the_fields_of_their_lines_and_of_their_segment(table: Table) -> None:
    (row,) = ask(table, "rows", where=["service.name=chat", "seq=1000"])["rows"]
    record = orjson.loads(table.line(row["key"]))
    assert record["seq"] == 1000
    assert row.items() >= {"tenant.id": "t0", "service.name": "chat", "severity": 9, "duration_s": 0.1005}.items()
    assert {name: value for name, value in row.items() if name in record} == {
        name: value for name, value in record.items() if name in KINDS and name != "timestamp"
    }


def test_the_aggregate_is_that_of_python(logs: Path, table: Table) -> None:
    requests = [record for record in python_records(logs) if record["event_name"] == "request"]
    answer = ask(
        table, "aggregate", events=["request"], group_by="tenant.id", groups_limit=2, buckets=7, heatmap="duration_s"
    )
    assert sum(answer["count"]) == len(requests)
    weights = [record.get("adjusted_count", 1) for record in requests]
    failed = [record["outcome"] != "ok" for record in requests]
    assert sum(answer["errors"]) == sum(itertools.compress(weights, failed))
    assert sum(answer["weighted"]) == sum(record.get("adjusted_count", 1) for record in requests)
    tokens = sum(r.get("gen_ai.usage.output_tokens", 0) * r.get("adjusted_count", 1) for r in requests)
    assert sum(answer["output_tokens"]) == tokens
    heat = answer["heatmap"]
    assert sum(map(sum, heat["cells"])) + sum(heat["zeros"]) == sum(weights)
    assert sum(heat["zeros"]) == sum(itertools.compress(weights, (record["duration_s"] == 0 for record in requests)))
    assert [group["value"] for group in answer["groups"]] == ["t0", "t1"]
    assert sum(answer["groups"][0]["count"]) == 800
    weighted = sorted((r["duration_s"], r.get("adjusted_count", 1.0)) for r in requests)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        left = share * sum(weight for _, weight in weighted)
        for exact, weight in weighted:
            left -= weight
            if left <= 0:
                assert math.isclose(answer["fields"]["duration_s"][name], exact, rel_tol=0.01)
                break


def test_values_come_with_their_counts(table: Table) -> None:
    assert ask(table, "values", field="tenant.id", limit=2) == [
        {"value": "t0", "count": 800}, {"value": "t1", "count": 800},
    ]  # fmt: skip
    assert ask(table, "values", field="http.response.status_code", where=["outcome=error"]) == [
        {"value": 500, "count": 80}
    ]
    assert ask(table, "values", field="message", text="NOTE 2")[0]["count"] == 1
    assert ask(table, "values", field="k8s.pod.name", events=["log"]) == []


def test_text_is_found_with_its_escapes_resolved(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    write_segment(directory, [log(1, 'say "Hi" to\tÉva'), log(2, "nothing")])
    table = open_table(directory, tmp_path / "cache")
    assert len(found(table, text='SAY "hi" TO\té'.replace("é", "É"))) == 1
    assert len(found(table, text="É")) == 1
    assert found(table, text="\\t") == set()


def test_times_and_traces_bound_the_answer(table: Table) -> None:
    at = int((BEGUN.timestamp() + 10) * 1e9)
    rows = ask(table, "rows", from_ns=at, to_ns=str(at + 1_000_000_000), limit=1000)
    assert (len(rows["rows"]), rows["matched"]) == (100, 100)
    assert len(found(table, trace=f"{1000:032x}")) == 1
    assert len(found(table, trace=f" {'0' * 29}3E8".lower())) == 1
    assert found(table, trace="f") == set()


@pytest.mark.parametrize(
    ("query", "names"), [({"order": "outcome"}, "order="), ({"after": "x"}, "after="), ({"where": ["x"]}, "where=")]
)
def test_a_wrong_query_is_refused_by_name_and_value(table: Table, query: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        ask(table, "rows", **query)


def test_a_directory_that_is_not_there_has_no_segments_yet_and_a_file_is_named(tmp_path: Path) -> None:
    table = Table([tmp_path / "nowhere"], None, tmp_path / "cache")
    assert table.refresh(10.0)["segments"] == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file"):
        Table([tmp_path / "file"], None, tmp_path / "cache")


def test_only_records_from_a_place_on_come_each_is_counted_and_the_end_is_reported(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [request(n) for n in range(30)], sealed=False)
    write_segment(tmp_path, [request(n) for n in range(3)], number=2)
    begin = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"".join(orjson.dumps(request(n)) + b"\n" for n in (40, 5, 7)))
    table = open_table(tmp_path, tmp_path / "cache")
    answer = ask(table, "rows", segments={path.name: begin}, order="oldest", limit=2)
    assert [row["seq"] for row in answer["rows"]] == [5000, 7000]
    assert (answer["matched"], answer["reached"]) == (3, {path.name: path.stat().st_size})
    assert ask(table, "rows", segments={"another": 0})["rows"] == []


def test_a_directory_is_chosen_by_the_path_that_was_given(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_segment(one, [request(n) for n in range(3)])
    write_segment(other, [request(n) for n in range(5)], number=2)
    table = Table([one, other], None, tmp_path / "cache")
    table.refresh(10)
    for directories, number in (([other], 5), ([one, other], 8), ([], 0), (["/nowhere"], 0)):
        assert len(ask(table, "rows", directories=list(map(str, directories)))["rows"]) == number


def test_a_live_segment_is_in_memory_until_its_writer_has_gone(tmp_path: Path) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    path = write_segment(logs, [request(1)], sealed=False)
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        table = open_table(logs, cache)
        for number in range(2, 6):
            writer.write(orjson.dumps(request(number)) + b"\n")
            writer.flush()
            assert table.refresh(10)["live_rows"] == number
            assert ask(table, "rows", limit=1)["rows"][0]["seq"] == number * 1000
        assert not list(cache.rglob("*.parquet"))
    assert table.refresh(10)["live_rows"] == 0
    assert len(list(cache.rglob("*.parquet"))) == 1
    assert len(found(table)) == 5


def test_live_segments_grow_and_keep_their_whole_lines(tmp_path: Path) -> None:
    directory, cache = tmp_path / "logs", tmp_path / "cache"
    path = write_segment(directory, [log(1)], sealed=False, tail=b'{"timestamp":')
    table = open_table(directory, cache)
    assert len(found(table)) == 1
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
    path.write_bytes(whole + orjson.dumps(log(2)) + b"\n")
    table.refresh(1)
    assert len(found(table)) == 2
    path.write_bytes(whole)
    table.refresh(1)
    assert len(found(table)) == 1


def test_only_chosen_prefixes_are_read_and_one_segment_once(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    path = write_segment(one, [log(1)])
    write_segment(one, [log(2)], prefix="more")
    other.mkdir()
    (other / path.name).write_bytes(path.read_bytes())
    table = Table([one, other], ["svc"], tmp_path / "cache")
    progress = table.refresh(1)
    assert (progress["segments"], progress["rows"]) == (1, 1)
    assert any("is in" in problem for problem in progress["problems"])
    assert Table([one, one], None, tmp_path / "cache").refresh(1)["segments"] == 2


def test_the_page_shows_the_very_record_of_each_key(logs: Path, table: Table) -> None:
    wanted = {key: record for path in logs.glob("*.jsonl") for key, record in lines_of(path, {}).items()}
    keys = sorted(found(table, where=["service.name=chat", "chunks<9"]))
    assert len(keys) > 400
    whole = [json.loads(line or b"null") for line in table.lines(keys)]
    assert whole == [wanted[key] for key in keys]
    assert [json.loads(table.line(key)) for key in keys[:20]] == whole[:20]
    segment, _, offset = keys[7].rpartition(":")
    gone = [f"{segment}:{int(offset) + 1}", f"{segment}:{1 << 62}", "nonsense", f"other:{offset}"]
    assert table.lines([*gone, keys[7]]) == [None] * 4 + [table.line(keys[7])]
    for key in gone:
        with pytest.raises(KeyError):
            table.line(key)


def test_a_rate_is_over_the_time_that_stats_takes_whatever_range_is_asked(logs: Path, table: Table) -> None:
    counts = count(segments(logs), None, None, lambda _: None).counts
    hour_before = int((BEGUN.timestamp() - 3600) * 1e9)
    for asked_for in ({}, {"from_ns": hour_before, "to_ns": hour_before + 10_000 * 10**9}):
        answer = ask(table, "aggregate", events=["request"], **asked_for)
        assert (int(answer["last_ns"]) - int(answer["first_ns"])) / 1e9 == pytest.approx(counts.seconds)


def test_a_file_for_each_sealed_segment_is_read_by_others(logs: Path, table: Table, tmp_path: Path) -> None:
    files = sorted((tmp_path / "cache").rglob("*.parquet"))
    assert [path.name.removesuffix(".parquet") for path in files] == sorted(
        path.name.removesuffix(".zst") for path in logs.iterdir()
    )
    assert {path.stat().st_mode & 0o777 for path in (*files, *(tmp_path / "cache").rglob("*.json"))} == {0o600}
    assert (tmp_path / "cache").stat().st_mode & 0o777 == files[0].parent.stat().st_mode & 0o777 == 0o700
    sql = f"SELECT count(*), max(duration_s), bool_or(odd), min(timestamp)::VARCHAR FROM '{files[0]}'"
    assert asked(sql) == [(4000, pytest.approx(3.9995), False, "2026-11-21 05:00:00")]


def test_the_statement_of_the_page_answers(logs: Path, table: Table, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "segment-index.md").read_text(encoding="utf-8")
    sql = page.partition("```sql\n")[2].partition("```")[0]
    answer = asked(sql.replace("~/.cache/inference-logging", str(tmp_path / "cache")))
    tenants = [record.get("tenant.id") for record in python_records(logs) if record["event_name"] == "request"]
    assert {tenant: count for tenant, count, _ in answer} == Counter(tenants)


def test_lines_that_are_no_records_are_left_out_and_counted(tmp_path: Path) -> None:
    deep = b'{"pid":1,"a":' + b"[" * 200_000
    noise = [b"{", b"", b"[1]", b"\0\0", b'{"a":"\xff"}', deep, b'{"a":1,}', b"nonsense", b'{"pid":1,"x":"\\ud800"}']
    path = write_segment(tmp_path, [request(n) for n in range(9)], sealed=False)
    path.write_bytes(path.read_bytes() + b"\n".join(noise) + b"\n" + orjson.dumps(request(9)) + b"\n")
    table = Table([tmp_path], None, tmp_path / "cache")
    progress = table.refresh(10)
    assert progress["rows"] == 10
    assert f"{len(noise)} lines are no records" in progress["problems"][0]


def test_the_last_rows_are_there_before_the_segment_is_read_and_the_answer_says_that_it_is_not_whole(
    tmp_path: Path,
) -> None:
    many = 8000
    path = write_segment(tmp_path, [request(n, chunks=n) for n in range(many)], resource=RESOURCES)
    table = Table([tmp_path], None, tmp_path / "cache")
    progress = table.refresh(0)
    assert (progress["done"], progress["indexed_segments"]) == (False, 0)
    shown = ask(table, "rows", limit=1000, fields=["chunks", "service.name"])
    assert [row["chunks"] for row in shown["rows"]] == list(range(many - 1, many - 1001, -1))
    assert (shown["complete"], shown["matched"]) == (False, None)
    assert 0 < shown["unindexed_bytes"] < path.stat().st_size
    assert shown["rows"][0]["service.name"] == "chat"
    while not table.refresh(10)["done"]:
        pass
    whole = ask(table, "rows", limit=1000, fields=["chunks", "service.name"])
    assert (whole["rows"], whole["complete"]) == (shown["rows"], True)
    assert sum(ask(table, "aggregate")["count"]) == many


def test_a_search_that_stops_goes_on_from_there(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(n / 10, f"note {n}") for n in range(9000)])
    table = open_table(tmp_path, tmp_path / "cache")
    query: dict[str, Any] = {"text": "note 77", "budget_s": 1e-9, "limit": 200}
    answer = ask(table, "rows", **query)
    assert (answer["complete"], answer["matched"]) == (False, None)
    assert answer["searched_to_ns"] is not None
    seen, pages = [*answer["rows"]], 1
    while answer["next"]:
        answer = ask(table, "rows", **query, after=answer["next"])
        seen += answer["rows"]
        pages += 1
    assert [row["seq"] for row in seen] == sorted((row["seq"] for row in seen), reverse=True)
    assert len({row["key"] for row in seen}) == len(seen) == 111
    assert pages > 3


def rows_of(directory: Path, cache: Path) -> int:
    table = Table([directory], None, cache)
    progress = table.refresh(10)
    assert progress["done"], progress
    assert len(found(table)) == progress["rows"]
    return int(progress["rows"])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def poison(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    path.write_bytes(content)


def link(path: Path) -> None:
    other = path.with_name("elsewhere")
    path.rename(other)
    path.symlink_to(other)


def exchange(path: Path) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{path}' (FORMAT parquet)")


@pytest.mark.servers
@pytest.mark.parametrize("harm", [cut, poison, link, exchange, Path.unlink])
@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_harmed_file_of_the_cache_is_made_again(tmp_path: Path, harm: Callable[[Path], None], suffix: str) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    write_segment(logs, [request(n) for n in range(50)])
    assert rows_of(logs, cache) == 50
    (path,) = cache.rglob(f"*.{suffix}")
    harm(path)
    assert rows_of(logs, cache) == 50
    (path,) = cache.rglob("*.jsonl.parquet")
    assert asked(f"SELECT count(*) FROM '{path}'") == [(50,)]
    assert not path.is_symlink()


def test_a_file_that_is_damaged_under_a_server_is_left_out_and_made_again(tmp_path: Path) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    write_segment(logs, [request(n) for n in range(50)])
    table = open_table(logs, cache)
    (path,) = cache.rglob("*.parquet")
    path.write_bytes(b"nothing")
    answer = ask(table, "rows")
    assert (answer["rows"], answer["complete"]) == ([], False)
    table.refresh(10)
    assert len(found(table)) == 50


def test_a_cache_of_another_user_or_behind_a_link_is_not_used(tmp_path: Path) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    write_segment(logs, [request(1)])
    assert rows_of(logs, cache) == 1
    (folder,) = cache.iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    table = Table([logs], None, cache)
    progress = table.refresh(10)
    assert (progress["rows"], len(progress["problems"])) == (1, 1)
    assert "no link; rows are kept in memory" in progress["problems"][0]
    assert len(found(table)) == 1


def test_another_segment_of_the_same_name_has_its_own_rows(tmp_path: Path) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    path = write_segment(logs, [request(n) for n in range(5)])
    assert rows_of(logs, cache) == 5
    path.unlink()
    write_segment(logs, [request(n) for n in range(7)])
    assert rows_of(logs, cache) == 7
    path.unlink()
    write_segment(logs, [request(1)], number=2)
    assert rows_of(logs, cache) == 1
    assert [path.name[-15:] for path in cache.rglob("*.parquet")] == ["2.jsonl.parquet"], (
        "that of a removed one is gone"
    )


def test_a_segment_that_is_compressed_keeps_its_table(tmp_path: Path) -> None:
    logs, cache = tmp_path / "logs", tmp_path / "cache"
    path = write_segment(logs, [request(n) for n in range(5)])
    table = open_table(logs, cache)
    (file,) = cache.rglob("*.parquet")
    made, facts, keys = file.stat().st_ino, path.stat(), found(table)
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    os.utime(packed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    path.unlink()
    table.refresh(10)
    assert found(table) == keys
    assert file.stat().st_ino == made
    assert all(json.loads(table.line(key))["event_name"] == "request" for key in keys)
