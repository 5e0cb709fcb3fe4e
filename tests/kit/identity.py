"""Requests whose identity is recorded: what the tests of it share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware
from tests.kit import support
from tests.kit.support import Client, body_messages, http_scope, read_lines

KEY = bytes(range(32))
SECRET = "sk-canary0123456789"
HEADERS = ["x-tenant=tenant.id", "X-Team", "authorization:hash=api_key.hash", "x-api-key:hash=api_key.hash"]
App = Callable[..., Awaitable[None]]
BODY = {
    "model": "m",
    "user": "user-7",
    "metadata": {"team": "search", "n": [1, 2]},
    "prompt_cache_key": "cache-1",
    "safety_identifier": "safe-1",
    "messages": [{"role": "user", "content": '"user":"no"'}],
}
NAMES = ("user", "metadata", "prompt_cache_key", "safety_identifier")


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def saying(content: object) -> App:
    """Return an application that answers with this JSON."""
    messages = support.answer(json.dumps(content).encode(), content_type=b"application/json")
    return support.replying(*messages)


def served(
    config: Config, headers: dict[str, str], body: object = None, app: App = answer, method: str = "POST"
) -> dict[str, Any]:
    """Return the record of one request."""
    (record,) = records_of(config, [headers], body, app, method)
    return record


def records_of(
    config: Config, requests: list[dict[str, str]], body: object = None, app: App = answer, method: str = "POST"
) -> list[dict[str, Any]]:
    middleware = InferenceLoggingMiddleware(app, config)

    async def main() -> None:
        for headers in requests:
            pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
            scope = http_scope("/v1/chat/completions", method, [*pairs, (b"content-type", b"application/json")])
            content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
            client = Client([*body_messages(content), {"type": "http.disconnect"}])
            await middleware(scope, client.receive, client.send)

    try:
        asyncio.run(main())
    finally:
        middleware._close()
    return [line for line in read_lines(config.directory) if line["event_name"] == "request"]


def keyed_hash(text: str) -> str:
    """Return the hash of a text as records have it, by another implementation."""
    blake3 = pytest.importorskip("blake3")
    return "blake3-keyed:" + str(blake3.blake3(text.encode(), key=KEY).hexdigest())


def everything(directory: Path) -> bytes:
    """Return the bytes of all files below a directory."""
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
