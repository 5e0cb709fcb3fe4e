"""What the application says of its request by `set`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from inference_logging import current_request
from inference_logging._native import RequestIds
from tests.identity import BODY, App, Configure, answer, served


def outcome(request: RequestIds, fields: dict[str, Any]) -> object:
    """Return what ``set`` returns, or the words of its error."""
    try:
        return request.set(**fields)
    except (TypeError, ValueError) as error:
        return str(error)


def setting(results: list[Any], *calls: dict[str, Any]) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = current_request()
        assert request is not None
        results.extend(outcome(request, fields) for fields in calls)
        await answer(scope, receive, send)
        results.append(request)

    return app


def test_fields_that_the_application_sets_are_in_the_record_and_its_ids_go_before_headers(keyed: Configure) -> None:
    results: list[Any] = []
    app = setting(
        results,
        {"tenant.id": "own", "enduser.id": "u-1", "queue": "fast", "n": 7, "ratio": 0.5, "cached": False},
        {"n": 2**64 - 1, "gen_ai.conversation.id": "c-1"},
    )
    config = keyed(record_headers=["x-tenant=tenant.id", "x-team"])
    record = served(config, {"x-tenant": "header", "x-team": "search"}, app=app)
    assert results[:2] == [True, True]
    assert results[2].set(late=1) is False, "the record is made"
    assert (record["tenant.id"], record["enduser.id"], record["gen_ai.conversation.id"]) == ("own", "u-1", "c-1")
    assert record["http.request.header.x-team"] == "search"
    assert record["attributes"] == {"queue": "fast", "n": 2**64 - 1, "ratio": 0.5, "cached": False}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"a": None}, "set: a is of type NoneType, must be str, int, float or bool"),
        ({"a": [1]}, "set: a is of type list"),
        ({"tenant.id": 7}, "set: tenant.id is of type int, must be str"),
        ({"a": "x" * 257}, "set: a has 257 bytes, must have at most 256"),
        ({"a": "\ud800"}, "set: a must be UTF-8"),
        ({"a": 2**64}, "set: a is no number of 64 bits"),
        ({"x" * 65: 1}, "has 65 bytes, must have 1 to 64"),
        ({"": 1}, "has 0 bytes"),
        ({f"a{number}": 1 for number in range(31)}, "set: the request has 33 fields, must have at most 32"),
    ],
)
def test_a_field_that_cannot_be_is_refused_and_sets_none_of_its_call(
    configure: Configure, fields: dict[str, Any], why: str
) -> None:
    results: list[Any] = []
    record = served(configure(), {}, app=setting(results, {"kept": 1}, {"also": 1, **fields}))
    assert results[0] is True
    assert why in results[1]
    assert record["attributes"] == {"kept": 1}


def test_set_takes_keywords_alone_of_its_own_class_and_says_so() -> None:
    assert str(inspect.signature(RequestIds.set)) == "(self, /, **fields)"
    assert (RequestIds.set.__doc__ or "").startswith("Set fields of the request's record, by name;")
    with pytest.raises(TypeError, match="RequestIds"):
        RequestIds.set("no request", a=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_fields_are_in_the_record_whenever_they_are_set_beside_headers_and_members_of_the_body(
    keyed: Configure, moment: str
) -> None:
    results: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = current_request()
        assert request is not None
        results.append(outcome(request, {}))
        with pytest.raises(TypeError, match="takes 0 positional arguments but 1 were given"):
            request.set({"a": 1})  # type: ignore[call-arg]
        if moment == "before":
            results.append(outcome(request, {"enduser.id": "u-1", "n": 1}))
        await answer(scope, receive, send)
        results.append(outcome(request, {"enduser.id": "u-2", "m": 2}))

    config = keyed(record_headers=["x-tenant=tenant.id", "x-user=enduser.id"], record_body_fields=["user"])
    record = served(config, {"x-tenant": "acme", "x-user": "header"}, BODY, app)
    assert results == [True] * len(results)
    assert (record["tenant.id"], record["enduser.id"]) == ("acme", "u-2")
    assert record["openai.request.user"] == BODY["user"]
    assert record["attributes"] == ({"n": 1, "m": 2} if moment == "before" else {"m": 2})
