"""An OpenAI-compatible server with a record of every request and streamed chunk: that is the `add_middleware` line.

Run:  uvicorn --app-dir examples fastapi_app:app      Records: ./logs/latest      Health: GET /health/logging
The answer is `max_tokens` made-up words at `tokens_per_second` (not given: at once): clients set length and pace.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AliasChoices, BaseModel, Field

from inference_logging import InferenceLoggingMiddleware, get_logger

app, log = FastAPI(), get_logger(__name__)
app.add_middleware(InferenceLoggingMiddleware)
app.get("/health")(lambda: {"status": "ok"})


class Ask(BaseModel):
    model: str = "example"
    max_tokens: int = Field(16, ge=1, validation_alias=AliasChoices("max_tokens", "max_completion_tokens"))
    n: int = Field(1, ge=1)
    stream: bool = False
    stream_options: dict[str, bool] = {}
    tokens_per_second: float = Field(float("inf"), gt=0)  # ours, not OpenAI's


@app.post("/v1/completions")
@app.post("/v1/chat/completions")
async def generate(ask: Ask, request: Request) -> Response:
    kind, key = ("chat.completion", "message") if "chat" in request.url.path else ("text_completion", "text")
    kind, key = ("chat.completion.chunk", "delta") if ask.stream and key == "message" else (kind, key)
    head = {"id": f"gen-{time.time_ns()}", "object": kind, "created": int(time.time()), "model": ask.model}
    asked, made = len((await request.body()).split()), ask.max_tokens * ask.n
    usage = {"usage": {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}}
    log.info("generation started", max_tokens=ask.max_tokens, stream=ask.stream)

    def body(text: str, finish: str | None = None) -> dict[str, Any]:
        content = text if key == "text" else {"role": "assistant", "content": text}
        return {**head, "choices": [{"index": i, key: content, "finish_reason": finish} for i in range(ask.n)]}

    async def events() -> AsyncIterator[str]:
        for i in range(1, ask.max_tokens + 1):
            await asyncio.sleep(1 / ask.tokens_per_second)
            yield f"data: {json.dumps(body(f'word{i} ', 'length' if i == ask.max_tokens else None))}\n\n"
        counted = bool(ask.stream_options.get("include_usage"))
        yield f"data: {json.dumps({**head, 'choices': [], **usage})}\n\n" * counted + "data: [DONE]\n\n"

    if ask.stream:  # Starlette cancels the generator when the client has gone
        return StreamingResponse(events(), media_type="text/event-stream")
    for _ in range(ask.max_tokens):
        await asyncio.sleep(1 / ask.tokens_per_second)
        if await request.is_disconnected():
            return Response(status_code=499)
    return JSONResponse(body("".join(f"word{i} " for i in range(1, ask.max_tokens + 1)), "length") | usage)
