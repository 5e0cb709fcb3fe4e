"""BentoML: two endpoints that answer with the words of a text, at once and as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import bentoml


@bentoml.service
class Echo:
    @bentoml.api
    def whole(self, text: str) -> str:
        return text.upper()

    @bentoml.api
    async def stream(self, text: str) -> AsyncGenerator[str, None]:
        for word in text.upper().split():
            yield f"{word} "
