"""The application behind the proxy of the tests: it knows nothing of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket


async def chat(request: Request) -> StreamingResponse:
    """Answer as servers with the API of OpenAI do: four tokens, their number, and the end."""
    model = (await request.json())["model"]

    async def events() -> AsyncIterator[str]:
        for word in ("hello", "to", "you", "too"):
            choices = [{"index": 0, "delta": {"content": word}}]
            yield f"data: {json.dumps({'id': 'a', 'model': model, 'choices': choices})}\n\n"
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        yield f"data: {json.dumps({'id': 'a', 'model': model, 'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def echo(request: Request) -> Response:
    """Return the body, and its length."""
    body = await request.body()
    return Response(body, headers={"x-length": str(len(body))})


async def headers(request: Request) -> JSONResponse:
    """Return the headers that have arrived."""
    return JSONResponse(dict(request.headers))


async def echo_messages(websocket: WebSocket) -> None:
    """Return each message."""
    await websocket.accept(subprotocol=next(iter(websocket.scope["subprotocols"]), None))
    async for text in websocket.iter_text():
        await websocket.send_text(text)


class Call:
    """A call over gRPC that says in its trailers that nobody is there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        await Request(scope, receive).body()
        kind = [(b"content-type", b"application/grpc")]
        await send({"type": "http.response.start", "status": 200, "headers": kind, "trailers": True})
        await send({"type": "http.response.body", "body": b"\0\0\0\0\x03abc"})
        await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"14")]})


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
        Route("/headers", headers),
        Route("/package.Service/Method", Call(), methods=["POST"]),
        WebSocketRoute("/echo-messages", echo_messages),
    ]
)
