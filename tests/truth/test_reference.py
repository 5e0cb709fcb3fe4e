"""The judges agree: what a builder says of its events, and what the slow reader finds in their bytes."""

from __future__ import annotations

import pytest

from tests.truth.catalogue import STREAMS, is_stream
from tests.truth.events import Stream, truth
from tests.truth.reference import read

FIELDS = ("outcome", "error.type", "error.code", "chunks", "stream.frames", "stream.keep_alives")
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
