"""The application that is recorded, and that recordings are replayed against: it answers as OpenAI's API does.

The last message says what to do: ``hold 3`` sends three chunks and then nothing more until the client leaves, ``wait``
sends nothing until then, ``refuse`` answers 429; after anything else the answer has `max_tokens` chunks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from inference_logging import InferenceLoggingMiddleware


async def chat(request: Request) -> Response:
    """Answer a chat as its last message asks."""
    body = await request.json()
    words = body["messages"][-1]["content"].split()
    most = int(words[1]) if words[0] == "hold" else body["max_tokens"]
    usage = {"prompt_tokens": len(words), "completion_tokens": most}
    if words[0] == "refuse":
        return JSONResponse({"error": {"message": "too many", "code": "rate_limit"}}, 429)
    if words[0] == "wait":
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response(status_code=499)
    if not body.get("stream"):
        message = {"role": "assistant", "content": _text(body, most)}
        return JSONResponse({"model": body["model"], "choices": [{"index": 0, "message": message}], "usage": usage})

    async def events() -> AsyncIterator[str]:
        for number in range(most):
            delta = {"role": "assistant", "content": _text(body, 1, number)}
            yield _event(body, [{"index": 0, "delta": delta}])
            await asyncio.sleep(0.002)
        if words[0] == "hold":
            await asyncio.Event().wait()  # Starlette cancels it when the client has left
        yield _event(body, [], usage=usage) + "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _text(body: dict[str, Any], words: int, first: int = 0) -> str:
    """Return an answer that depends on the request, so that another request would have another one."""
    seed = sum(map(ord, body["messages"][-1]["content"]))
    return "".join(f"word{seed + number} " for number in range(first, first + words))


def _event(body: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> str:
    return f"data: {json.dumps({'id': 'a', 'model': body['model'], 'choices': choices, **more})}\n\n"


app = InferenceLoggingMiddleware(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])]))
