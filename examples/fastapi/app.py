"""An OpenAI-compatible server with a record of every request and streamed chunk.

Run:  uvicorn app:app --no-access-log
Records: ./logs      Health: GET /health/logging

What concerns logging are the two lines that make `log` and add the middleware. The rest is a server to try it with: the
answer is `max_tokens` made-up words at `tokens_per_second`, so that clients set length and pace.
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

log = get_logger(__name__)
app = FastAPI()
app.add_middleware(InferenceLoggingMiddleware)


class Ask(BaseModel):
    """The members of a request that matter here."""

    model: str = "example"
    max_tokens: int = Field(16, ge=1, validation_alias=AliasChoices("max_tokens", "max_completion_tokens"))
    n: int = Field(1, ge=1)
    stream: bool = False
    stream_options: dict[str, bool] = {}
    tokens_per_second: float = Field(float("inf"), gt=0)  # not in OpenAI's interface; not given: at once

    async def pace(self) -> None:
        """Wait as long as a token takes."""
        await asyncio.sleep(1 / self.tokens_per_second)

    def words(self) -> list[str]:
        """Return what is generated."""
        return [f"word{number} " for number in range(1, self.max_tokens + 1)]


class Answer:
    """The objects of an answer, of the chat interface or of the older one."""

    def __init__(self, ask: Ask, *, is_chat: bool, prompt_tokens: int) -> None:
        kind = "chat.completion" if is_chat else "text_completion"
        self._is_chat, self._choices = is_chat, ask.n
        self._head = {
            "id": f"gen-{time.time_ns()}",
            "object": f"{kind}.chunk" if is_chat and ask.stream else kind,
            "created": int(time.time()),
            "model": ask.model,
        }
        self._key = ("delta" if ask.stream else "message") if is_chat else "text"
        generated = ask.max_tokens * ask.n
        self._usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
        }

    def part(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """Return one object with a text for each choice."""
        content: Any = {"role": "assistant", "content": text} if self._is_chat else text
        choices = [
            {"index": index, self._key: content, "finish_reason": finish_reason} for index in range(self._choices)
        ]
        return {**self._head, "choices": choices}

    def whole(self, text: str) -> dict[str, Any]:
        """Return the whole answer, with its usage."""
        return {**self.part(text, "length"), "usage": self._usage}

    def usage(self) -> dict[str, Any]:
        """Return the last object of a stream whose client asked for the usage."""
        return {**self._head, "choices": [], "usage": self._usage}


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/completions")
@app.post("/v1/chat/completions")
async def generate(ask: Ask, request: Request) -> Response:
    prompt_tokens = len((await request.body()).split())
    answer = Answer(ask, is_chat="chat" in request.url.path, prompt_tokens=prompt_tokens)
    log.info("generation started", max_tokens=ask.max_tokens, stream=ask.stream)
    if ask.stream:
        # Starlette cancels the generator when the client has gone.
        return StreamingResponse(events(ask, answer), media_type="text/event-stream")
    for _ in ask.words():
        await ask.pace()
        if await request.is_disconnected():
            return Response(status_code=499)
    return JSONResponse(answer.whole("".join(ask.words())))


async def events(ask: Ask, answer: Answer) -> AsyncIterator[str]:
    words = ask.words()
    for word in words:
        await ask.pace()
        yield event(answer.part(word, "length" if word is words[-1] else None))
    if ask.stream_options.get("include_usage"):
        yield event(answer.usage())
    yield "data: [DONE]\n\n"


def event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
