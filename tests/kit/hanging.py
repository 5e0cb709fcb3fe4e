"""Requests that hang until their process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

from inference_logging import Config, InferenceLoggingMiddleware
from tests.kit.signatures import Receive, Send
from tests.kit.support import Client, answer, body_messages, http_scope

JSON = (b"content-type", b"application/json")

CHUNK = b"data: word\n\n"


def hang(parts: list[bytes], reached: Callable[[], object]) -> Any:
    """Return an application that reads the request, streams ``parts``, calls ``reached`` and never returns."""

    async def app(_scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        for position, message in enumerate(answer(*parts, b"", content_type=b"text/event-stream")):
            if position <= len(parts) and parts:
                await send(message)
        reached()
        await asyncio.Event().wait()

    return app


def serve_hanging(config: Config, reached: Callable[[], object], *requests: tuple[str, bytes, int]) -> None:
    """Serve requests (path, body, chunks) that all hang; call ``reached`` once all of them do."""
    waiting = []

    def one_more() -> None:
        waiting.append(1)
        if len(waiting) == len(requests):
            reached()

    async def all_of_them() -> None:
        calls = []
        for path, body, chunks in requests:
            app = InferenceLoggingMiddleware(hang([CHUNK] * chunks, one_more), config)
            client = Client(body_messages(body))
            calls.append(app(http_scope(path, "POST", [JSON]), client.receive, client.send))
        await asyncio.gather(*calls)

    asyncio.run(all_of_them())
