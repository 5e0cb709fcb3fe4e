"""Random streams, cut at random: the record agrees with the slow reader, and the slow reader with the builder.

``TRUTH_STREAMS`` says how many, ``TRUTH_SEED`` the number of the first one; a message of a failure names the number.
At length: ``TRUTH_STREAMS=1000000 pytest --timeout=0 tests/truth/test_random.py``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.signatures import Configure
from tests.kit.support import Recorded
from tests.truth.catalogue import STREAMS, is_stream
from tests.truth.events import Stream, truth
from tests.truth.in_process import Stage
from tests.truth.random_streams import sent
from tests.truth.reference import read
from tests.truth.table import Comparison

FIELDS = ("outcome", "error.type", "error.code", "chunks", "stream.frames", "stream.keep_alives")
COUNT = int(os.environ.get("TRUTH_STREAMS", "2000"))
SEED = int(os.environ.get("TRUTH_SEED", "0"))
AT_ONCE = 10_000
"""Streams of one log directory."""


def batches() -> Iterator[range]:
    """Give the numbers of the streams, some at once."""
    for start in range(SEED, SEED + COUNT, AT_ONCE):
        yield range(start, min(start + AT_ONCE, SEED + COUNT))


def test_the_slow_reader_and_the_builder_agree_on_random_streams() -> None:
    for number in range(SEED, SEED + COUNT):
        answer = sent(number)
        true = truth(answer.stream)
        found = read(answer.stream.body(), answer.stream.content_type).facts()
        assert {name: found.get(name) for name in FIELDS} == {name: true.get(name) for name in FIELDS}, str(answer)


def test_records_of_random_streams_agree_with_the_slow_reader(
    configure: Configure, tmp_path: Path, comparison: Comparison
) -> None:
    for numbers in batches():
        here = tmp_path / str(numbers.start)
        recorded = Recorded(
            configure(directory=here / "segments", queue_directory=here / "queues", queue_bytes=32 << 20)
        )
        try:
            for answer, record in Stage(recorded).records(map(sent, numbers)):
                found = read(answer.stream.body(), answer.stream.content_type)
                comparison.record(answer, found.facts(), record, FIELDS)
        finally:
            recorded.close()
            shutil.rmtree(here)
    comparison.conclude()


READ = [stream for stream in STREAMS if is_stream(stream)]


@pytest.mark.parametrize("stream", READ, ids=lambda stream: f"{stream.api}: {stream.shape}")
def test_the_slow_reader_finds_what_the_builder_says(stream: Stream) -> None:
    true = truth(stream)
    found = read(stream.body(), stream.content_type)
    assert {name: found.facts().get(name) for name in FIELDS} == {name: true.get(name) for name in FIELDS}
    assert found.order == [("frame" if event.kind == "usage" else event.kind) for event in stream.events] or [
        "frame" if kind == "end" else kind for kind in found.order
    ] == ["frame" if event.kind in ("usage", "end") else event.kind for event in stream.events]


def test_no_two_streams_have_one_name() -> None:
    names = [(stream.api, stream.shape) for stream in STREAMS]
    assert len(set(names)) == len(names)
