"""The requests and answers of the rows that `bench_instructions` counts."""

from __future__ import annotations

import json
from typing import Final

CHUNK: Final = b'data: {"id":"gen-1","object":"text_completion","choices":[{"index":0,"text":"word "}]}\n\n'


def _delta(**delta: str) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    chunk = {"id": "chatcmpl-" + "0" * 32, "object": "chat.completion.chunk", "created": 1, "model": "meta-llama"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]}, separators=(',', ':'))}\n\n".encode()


STREAMS: Final = {
    "stream": (CHUNK,),
    "chat": (_delta(content="word "),),
    "mixed": (_delta(content="word "), _delta(reasoning_content="hm")),
}
"""Events of about 90 and 200 bytes, all of one shape or of two in turn."""
MESSAGES: Final = [{"role": "user", "content": "What is the airspeed of an unladen swallow?"}]
BODY: Final = json.dumps({"model": "meta/llama-3-8b", "max_tokens": 16, "messages": MESSAGES}).encode()
CHOICE: Final = {"index": 0, "message": {"role": "assistant", "content": "word " * 16}, "finish_reason": "stop"}
USAGE: Final = {"prompt_tokens": 12, "completion_tokens": 16, "total_tokens": 28}
ANSWER: Final = json.dumps(
    {"id": "chatcmpl-1", "object": "chat.completion", "model": "meta/llama-3-8b", "choices": [CHOICE], "usage": USAGE}
).encode()
CLIENT_HEADERS: Final = (
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"user-agent", b"OpenAI/Python 1.50.0"),
    (b"authorization", b"Bearer 0123456789abcdef"),
)
POST_HEADERS: Final = ((b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode()))
TRACE_HEADERS: Final = ((b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)

IDENTITY_HEADERS: Final = ((b"x-tenant", b"acme"), (b"x-user", b"user-0123456789"))
RECORDED: Final = ("x-tenant=tenant.id", "x-user=enduser.id", "authorization:hash=api_key.hash")
