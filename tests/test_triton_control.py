"""Run-time control of a Triton model's requests: what a change does to the next record; without a Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_triton import FINAL, ok, request
from tests.support import TRACE_ID, TRACEPARENT, Recorded
from tests.test_control import control

pytestmark = pytest.mark.usefixtures("fake_backend")
Serve = Callable[..., tuple[Any, Recorded]]

PATH = "/v2/models/{model}/versions/*"
"""What stands for the path of a model's requests."""


def stream(self: Any, requests: list[Any]) -> None:
    for one in requests:
        sender = one.get_response_sender()
        for _ in range(3):
            sender.send(ok())
        sender.send(flags=FINAL)


def break_off(self: Any, requests: list[Any]) -> None:
    for one in requests:
        for _ in range(3):
            one.get_response_sender().send(ok())
    raise ValueError


def test_a_sampling_ratio_holds_for_the_next_request_of_a_model(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()], sample_ratio=0)
    model.execute([request(name="before")])
    control(recorded.config, "sample-ratio", "1")
    model.execute([request(name="while")])
    control(recorded.config, "sample-ratio", "0")
    model.execute([request(name="after")])
    record = recorded.request()
    assert (record["client_request_id"], record["sampled_by"]) == ("while", "head")


def test_a_chunks_mode_holds_for_the_next_stream_of_a_model(serve: Serve) -> None:
    model, recorded = serve(stream, decoupled=True, chunks="off")
    model.execute([request()])
    control(recorded.config, "chunks", "timeline")
    model.execute([request()])
    control(recorded.config, "chunks", "events")
    model.execute([request()])
    off, timeline, events = recorded.records("request")
    assert "chunks" not in off
    assert len(timeline["chunk_gaps_us"]) == 2
    assert (events["chunks"], "chunk_gaps_us" in events) == (3, False)
    chunks = recorded.records("request.chunk")
    assert [(chunk["trace_id"], chunk["chunk"]) for chunk in chunks] == [
        (events["trace_id"], number) for number in (1, 2, 3)
    ]
    assert not any("bytes" in chunk for chunk in chunks)


@pytest.mark.parametrize("target", [("--route", PATH), ("--trace", TRACE_ID)], ids=["route", "trace"])
def test_a_captured_request_of_a_model_is_recorded_whole_whatever_the_sampler_says(
    serve: Serve, target: tuple[str, str]
) -> None:
    model, recorded = serve(stream, decoupled=True, sample_ratio=0, chunks="off")
    control(recorded.config, "capture", *target)
    model.execute([request(traceparent=TRACEPARENT.decode())])
    record = recorded.request()
    assert (record["trace_id"], record["sampled_by"], record["adjusted_count"]) == (TRACE_ID, "forced", 1.0)
    assert [chunk["chunk"] for chunk in recorded.records("request.chunk")] == [1, 2, 3]


def test_the_next_errors_of_a_model_have_their_timeline_and_only_as_many_as_are_wanted(serve: Serve) -> None:
    model, recorded = serve(break_off, decoupled=True, chunks="summary")
    control(recorded.config, "capture", "--errors", "2")
    for _ in range(3):
        with pytest.raises(ValueError):  # noqa: PT011 - that of the model, which says nothing
            model.execute([request()])
    assert ["chunk_gaps_us" in record for record in recorded.records("request")] == [True, True, False]
