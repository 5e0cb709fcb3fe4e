"""The files of the table in the cache directory: made for this user, made again where they are harmed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
import zstandard

from inference_logging.read.table.table import Table
from tests.segment_files import request, write_segment
from tests.table_questions import ask, asked, found, open_table


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
