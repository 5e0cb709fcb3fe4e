"""What an application does once its answer has passed is no part of the answer: neither its time nor its failures."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import MutableMapping
from typing import Any

import pytest
from fastapi import BackgroundTasks, FastAPI
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from tests.support import Client, Message, Receive, Recorded, Send, answer, http_scope

Scope = MutableMapping[str, Any]


async def work() -> None:
    """Take a while, as a background task does."""
    await asyncio.sleep(0.05)


async def fail() -> None:
    """Fail, as a background task does."""
    raise LookupError


def background(task: Any) -> FastAPI:
    """Return an application that answers and then does ``task``."""
    app = FastAPI()

    @app.get("/")
    async def route(tasks: BackgroundTasks) -> str:
        tasks.add_task(task)
        return "ok"

    return app


def test_a_background_task_takes_time_behind_the_answer(recorded: Recorded) -> None:
    recorded.serve(background(work))
    record = recorded.request()
    # The sleep is between the two of them, whatever the machine adds.
    assert record["after_response_s"] >= 0.05
    assert record["duration_s"] >= 0
    assert (record["outcome"], "after_response_outcome" in record) == ("ok", False)


def test_a_background_task_that_fails_is_no_error_of_the_answer(recorded: Recorded) -> None:
    with pytest.raises(LookupError):
        recorded.serve(background(fail))
    record = recorded.request()
    assert (record["outcome"], record["http.response.status_code"], "error.type" in record) == ("ok", 200, False)
    assert (record["after_response_outcome"], record["after_response_error_type"]) == ("error", "LookupError")
    assert record["severity_text"] == "ERROR"


class Refusing(Client):
    """A server that refuses the last part of an answer."""

    error: Exception = RuntimeError("Response content shorter than Content-Length")

    async def send(self, message: Message) -> None:
        """Take ``message``, unless it is the last one."""
        if message["type"] == "http.response.body" and not message.get("more_body"):
            raise self.error
        await super().send(message)


@pytest.mark.parametrize("wraps", [False, True], ids=["as it is", "partial"])
def test_a_last_part_that_the_server_refuses_is_an_error_of_the_answer(recorded: Recorded, wraps: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer(b"x"):
            await send(message)

    client = Refusing()
    send = functools.partial(client.send) if wraps else client.send
    with pytest.raises(RuntimeError):
        asyncio.run(recorded.wrap(app)(http_scope(), client.receive, send))
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("error", "RuntimeError")
    assert not {"after_response_s", "after_response_outcome"} & record.keys()


def test_a_client_that_is_gone_when_the_last_part_comes_is_a_disconnect(recorded: Recorded) -> None:
    class Gone(Refusing):
        error = OSError()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> Any:
            yield b"x"

        await StreamingResponse(parts())(scope, receive, send)

    client = Gone()
    scope = {**http_scope(), "asgi": {"version": "3.0", "spec_version": "2.4"}}
    with pytest.raises(ClientDisconnect):
        asyncio.run(recorded.wrap(app)(scope, client.receive, client.send))
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("client_disconnect", "ClientDisconnect")
    assert "after_response_outcome" not in record
