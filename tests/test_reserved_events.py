"""Events named like the listener's own: refused at registration, and no reader takes such a record for framing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from inference_logging import Config, Logger
from inference_logging.segments import read_records
from tests.command_line import run
from tests.segment_files import log, write_segment
from tests.shipping.test_source import ship, source
from tests.test_segments_follow import Writer, until_set

OWN = [
    "segment.header",
    "segment.footer",
    "segment.repaired",
    "segment.kept",
    "segments.removed",
    "log.dropped",
    "process.ended",
    "control.changed",
    "sink.failed",
    "sink.recovered",
    "sink.fallback",
    "sink.dropped",
]
FRAMING: list[dict[str, Any]] = [
    {"n": 1, "processes": [{"boot_id": "00000000deadbeef", "dropped": {"queue_full": {"INFO": 7}}}]},
    {"n": 2, "segment": 1, "records": 9},
]


def forged(event: str, second: float, **fields: Any) -> dict[str, Any]:
    """Return a record of an application that named its event like this."""
    return {**log(second), "event_name": event, **fields}


@pytest.mark.parametrize("lane", ["fast", "audit"])
@pytest.mark.parametrize("name", OWN)
def test_an_event_named_like_the_listeners_own_is_refused_by_name(
    configure: Callable[..., Config], name: str, lane: Any
) -> None:
    config = configure(audit="on")
    with Logger(config) as logger:
        for fields in (["n"], ["dropped", "reasons", "lost"], []):
            with pytest.raises(ValueError, match=f'event "{name}" is the listener\'s own'):
                logger.event(name, fields, lane=lane)
        assert logger.event("segment.footers", ["n"], lane=lane)(1)


def records() -> list[dict[str, Any]]:
    """Return records of which some are named like framing and like what a listener reports."""
    names = ["segment.header", "segment.footer", "process.ended", "log.dropped"]
    return [
        *(forged(name, number + 1, **FRAMING[number % 2]) for number, name in enumerate(names)),
        log(9, n=4),
    ]


def test_a_record_named_like_framing_is_read_followed_shipped_counted_and_queried(tmp_path: Path) -> None:
    write_segment(tmp_path, records())
    assert [record["n"] for record in read_records(tmp_path)] == [1, 2, 1, 2, 4]
    assert [record["n"] for record in until_set(tmp_path, begin="start")] == [1, 2, 1, 2, 4]
    with source(tmp_path) as opened:
        assert ship(opened) == [1, 2, 1, 2, 4]
    stats = json.loads(run("stats", str(tmp_path), "--json").out)
    assert stats["dropped"] == []
    done = run("query", "SELECT count(*) AS n FROM records", str(tmp_path), "--format", "json")
    assert json.loads(done.out) == {"n": 5}


def test_a_live_segment_with_a_record_named_like_a_footer_goes_on_for_who_follows_and_ships_it(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [forged("segment.footer", 1, n=0)], sealed=False)
    writer = Writer(path)
    followed = until_set(tmp_path, writer.append(orjson.dumps(log(2, n=1)) + b"\n"), lambda: None)
    assert [record["n"] for record in followed] == [1], "it does not pass for sealed"
    with source(tmp_path) as opened:
        assert ship(opened) == [0, 1]
        writer.append(orjson.dumps(log(3, n=2)) + b"\n")()
        assert ship(opened) == [2]
    writer.die()


def test_verification_does_not_take_an_applications_record_for_the_listeners(tmp_path: Path) -> None:
    names = ["segment.footer", "segment.header", "process.ended", "log.dropped", "sink.fallback"]
    made = [forged(name, 1, seq=number, n=number) for number, name in enumerate(names)]
    write_segment(tmp_path, [*made, {**log(3), "seq": 5}], sealed=False)
    report = json.loads(run("verify", str(tmp_path), "--json").out)
    assert [problem["kind"] for problem in report["problems"]] == ["end_unknown"]
    assert report["totals"]["written"] == 6
