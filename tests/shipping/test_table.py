"""Parquet files of segments: each column takes what records have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from inference_logging import Config
from inference_logging.segments import segments
from inference_logging.ship.rows import COLUMNS, row
from inference_logging.ship.s3.staging import Staging
from tests.support import Recorded, answer, replying

Configure = Callable[..., Config]


def test_the_times_of_a_stream_are_in_their_column(configure: Configure, tmp_path: Path) -> None:
    recorded = Recorded(configure())
    recorded.serve(replying(*answer(b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n", content_type=b"text/event-stream")))
    (request,) = recorded.records("request")
    recorded.close()
    (segment,) = segments(recorded.config.directory)
    staged = Staging(tmp_path / "staged").stage(segment, "parquet")
    found = duckdb.execute(
        f"SELECT chunks, chunk_gaps_us, other FROM read_parquet('{staged.path}') WHERE event_name = 'request'"
    ).fetchall()
    assert len(request["chunk_gaps_us"]) > 0
    assert found == [(request["chunks"], request["chunk_gaps_us"], None)]


def test_a_value_of_another_kind_than_its_columns_stands_below_other() -> None:
    of_lists = {name: kind for name, kind in COLUMNS.items() if kind.endswith("[]")}
    assert set(of_lists.values()) == {"BIGINT[]", "VARCHAR[]"}
    for name, kind in of_lists.items():
        wrong = ["1"] if kind == "BIGINT[]" else [1]
        assert row({name: wrong}) == {"other": {name: wrong}}
        assert row({name: []}) == {name: []}


def test_every_kind_of_column_takes_a_record() -> None:
    # A kind that nothing judges would be an error for the first record that has such a column.
    assert row(dict.fromkeys(COLUMNS))["other"].keys() >= {"timestamp", "chunk_gaps_us"}
