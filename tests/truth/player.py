"""A server's application without a framework: it plays the script that a client names, and says how far it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware
from tests.kit.signatures import Receive, Send
from tests.truth.catalogue import by_name
from tests.truth.events import Stream

HEADER: Final = b"x-truth-script"
BEGUN: Final = -2
"""The request is read, and nothing is answered."""
STARTED: Final = -1
"""The headers are handed to the server."""


@dataclass(frozen=True)
class Script:
    """What a server does with one request."""

    api: str
    shape: str
    pause_s: float = 0.03
    """Before each event."""
    ending: str = "whole"
    """`whole`, `left`: it waits until the client goes, or `raised`: it fails."""
    until: int | None = None
    """After how many events it ends so; ``BEGUN`` and ``STARTED`` are before the first."""
    cut: str = "an event a message"

    @property
    def whole_stream(self) -> Stream:
        """The stream, as if it came to its end."""
        return by_name(self.api, self.shape)

    @property
    def stream(self) -> Stream:
        """What of the stream is sent."""
        return self.whole_stream if self.until is None else self.whole_stream.before(max(self.until, 0))

    def messages(self) -> list[tuple[float, bytes]]:
        """Return body messages, and the pause before each."""
        parts = self.stream.parts()
        if self.cut == "2 events a message":
            joined = [b"".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
            return [(2 * self.pause_s, part) for part in joined]
        if self.cut == "3 messages an event":
            sizes = [-(-len(part) // 3) for part in parts]
            return [
                (self.pause_s if at == 0 else 0.0, part[at : at + size])
                for part, size in zip(parts, sizes, strict=True)
                for at in range(0, len(part), size)
            ]
        return [(self.pause_s, part) for part in parts]

    def header(self) -> str:
        """Return the value of the header that asks for it."""
        return json.dumps(asdict(self))


_reached: dict[str, int] = {}
"""How many messages of each request were handed to the server."""


class EngineDeadError(RuntimeError):
    """The application fails in the middle of an answer."""


async def play(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer one request."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    headers = dict(scope["headers"])
    while (await receive()).get("more_body"):
        pass
    if HEADER not in headers:
        await _answer(send, json.dumps(_reached).encode())
        return
    script = Script(**json.loads(headers[HEADER]))
    await _perform(script, headers[b"x-request-id"].decode(), receive, send)


async def _perform(script: Script, name: str, receive: Receive, send: Send) -> None:
    _reached[name] = BEGUN
    if script.until != BEGUN:
        start = [(b"content-type", script.stream.content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        _reached[name] = STARTED
        for number, (pause_s, part) in enumerate(script.messages()):
            await asyncio.sleep(pause_s)
            await send({"type": "http.response.body", "body": part, "more_body": True})
            _reached[name] = number + 1
    if script.ending == "left":
        while (await receive())["type"] != "http.disconnect":
            pass
    elif script.ending == "raised":
        raise EngineDeadError
    else:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


app = InferenceLoggingMiddleware(play)
