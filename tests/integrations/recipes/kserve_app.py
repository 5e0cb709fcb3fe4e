"""KServe: a model that answers with the words of texts, at once or as a stream; the port is the argument."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from kserve import Model, ModelServer


class Echo(Model):
    def __init__(self) -> None:
        super().__init__("echo")
        self.ready = True

    async def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        texts = [text.upper() for text in payload["instances"]]
        return self._words(texts) if payload.get("stream") else {"predictions": texts}

    async def _words(self, texts: list[str]) -> AsyncIterator[str]:
        for word in " ".join(texts).split():
            yield f"data: {word}\n\n"


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), enable_grpc=False).start([Echo()])
