"""Ray Serve: a deployment that answers with the words of a text, at once or as a stream; the port is the argument."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse


@serve.deployment
class Echo:
    async def __call__(self, request: Request) -> Response:
        text = (await request.json())["text"].upper()
        if request.url.path == "/stream":
            return StreamingResponse(self._words(text), media_type="text/event-stream")
        return PlainTextResponse(text)

    def _words(self, text: str) -> Iterator[str]:
        for word in text.split():
            yield f"data: {word}\n\n"


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Echo.bind(), blocking=True)
