"""Conditions of `--where`: typed by the record's value."""

from __future__ import annotations

from typing import Any

import pytest

from inference_logging.read.where import Condition

RECORD: dict[str, Any] = {
    "outcome": "error",
    "duration_s": 1.5,
    "http.response.status_code": 503,
    "client_request_id": "007",
    "gen_ai.request.stream": True,
    "error.type": None,
    "gen_ai.response.finish_reasons": ["stop", "length"],
    "timestamp": "2026-11-21T05:00:00.5Z",
    "gen_ai.request.model": "large",
    "attributes": {"n": 3, "deep": {"er": "x"}, "a.b": "dotted"},
}


@pytest.mark.parametrize(
    "text",
    [
        "outcome=error", "outcome = error", "outcome!=ok", "outcome~err",
        "duration_s>1", "duration_s>=1.5", "duration_s<=1.5e0", "duration_s<2", "duration_s=1.50", "duration_s!=2",
        "http.response.status_code>=500", "http.response.status_code=503.0", "http.response.status_code~50",
        "client_request_id=007", "client_request_id!=7", "client_request_id<01",
        "gen_ai.request.stream=true", "gen_ai.request.stream!=1", "error.type=null",
        "gen_ai.response.finish_reasons=length", "gen_ai.response.finish_reasons~top",
        "timestamp>2026-11-21T05:00:00", "timestamp<2026-11-21T05:00:01",
        "attributes.n=3", "attributes.deep.er=x", "attributes.a.b=dotted", "attributes.deep~er",
        "absent!=1", "absent.deep!=x",
        "status=503", "status>=500", "method!=GET", "model=large",
    ],
)  # fmt: skip
def test_a_condition_holds(text: str) -> None:
    assert Condition.parse(text).holds(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "outcome=ok", "outcome!=error", "outcome=Error", "outcome~OK", "outcome=",
        "duration_s>1.5", "duration_s<1.5", "duration_s=slow", "duration_s>slow", "duration_s!=1.5",
        "client_request_id=7", "gen_ai.request.stream=1", "gen_ai.request.stream>0",
        "gen_ai.response.finish_reasons!=stop", "gen_ai.response.finish_reasons=stop,length",
        "absent=", "absent<1", "absent~", "attributes.n.m=3", "outcome.x~", "attributes.=3",
    ],
)  # fmt: skip
def test_a_condition_does_not_hold(text: str) -> None:
    assert not Condition.parse(text).holds(RECORD)


def test_a_short_name_means_the_first_of_its_fields_unless_a_record_has_one_of_that_name() -> None:
    named = {
        "gen_ai.request.model": "asked",
        "triton.model_name": "t",
        "http.route": "/a",
        "http.request.method": "PUT",
    }
    for text in ("model=asked", "route=/a", "method=PUT"):
        assert Condition.parse(text).holds(named)
    assert Condition.parse("model=answered").holds({**named, "gen_ai.response.model": "answered"})
    assert Condition.parse("model=own").holds({**named, "model": "own"})


def test_what_stands_behind_the_first_operator_is_the_value() -> None:
    assert Condition.parse("url.path~?a=b").holds({"url.path": "/x?a=b"})


@pytest.mark.parametrize("text", ["", "outcome", "=x", " =x", "a b"])
def test_text_that_is_no_condition_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="must be FIELD") as caught:
        Condition.parse(text)
    assert repr(text) in str(caught.value)
