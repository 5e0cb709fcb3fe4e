"""What a server does until it is killed: it streams answers to many clients at once, and journals each as it begins."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from itertools import count
from typing import Any, Final, NoReturn

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from tests.crash.journal import ACCEPTED, Pen
from tests.kit.signatures import App, Receive, Send
from tests.kit.support import Client, answer, http_scope

CHUNK: Final = b"data: word\n\n"
CHUNKS: Final = 5

_CLIENTS = 16
_GAP_S = 0.001


def serve(config: Config, journal: int, life: int) -> NoReturn:
    """Serve requests until killed; of each the id says whose it is: life, client and number."""

    async def serve_all() -> None:
        await asyncio.gather(*(_requests_of(client, config, journal, life) for client in range(_CLIENTS)))

    with Logger(config):
        asyncio.run(serve_all())
    raise AssertionError("unreachable")


async def _requests_of(client: int, config: Config, journal: int, life: int) -> None:
    pen, numbers = Pen(journal, life, client), count()
    served = InferenceLoggingMiddleware(_streaming(pen, numbers), config)
    for number in count():
        one = Client()
        name = (b"x-request-id", f"{life}.{client}.{number}".encode())
        await served(http_scope("/stream", headers=[name]), one.receive, one.send)


def _streaming(pen: Pen, numbers: count[int]) -> App:
    start, *chunks, end = answer(*[CHUNK] * CHUNKS, content_type=b"text/event-stream")

    async def app(_scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # From here on the request is in flight, and must have its record whatever happens.
        pen.write(ACCEPTED, next(numbers))
        await receive()
        await send(start)
        for chunk in chunks:
            await asyncio.sleep(_GAP_S)
            await send(chunk)
        await send(end)

    return app
