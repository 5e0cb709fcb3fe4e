"""The application of `bench_ab`: each request burns CPU time, and a recorded one burns a known share more.

``BENCH_AB_BURN_US`` is what every request burns, ``BENCH_AB_EXTRA_US`` what a recorded one burns besides.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware, current_request

Message = MutableMapping[str, Any]

BURN_NANO: Final = int(float(os.environ.get("BENCH_AB_BURN_US", "2000")) * 1000)
EXTRA_NANO: Final = int(float(os.environ.get("BENCH_AB_EXTRA_US", "0")) * 1000)
_HEADERS: Final = [(b"content-type", b"text/plain"), (b"content-length", b"2")]


async def answer(scope: Message, _receive: object, send: Callable[[Message], Awaitable[None]]) -> None:
    """Burn, and answer."""
    if scope["type"] != "http":
        raise ValueError(f"scope type={scope['type']}: this application answers http only")
    end = time.thread_time_ns() + BURN_NANO
    if current_request() is not None:
        end += EXTRA_NANO
    while time.thread_time_ns() < end:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"ok"})


app = InferenceLoggingMiddleware(answer)
