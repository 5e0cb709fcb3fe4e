"""Log one request with what is installed, and read it back; exit with an error where that fails.

It needs nothing but the wheel and what that depends on: ``python first_request.py DIRECTORY``.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import platform
import sys
from pathlib import Path
from typing import Any, Final

from inference_logging import Config, InferenceLoggingMiddleware

REQUEST: Final = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "path": "/hello",
    "raw_path": b"/hello",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 50000),
    "server": ("127.0.0.1", 8000),
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Start, answer each request, stop."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})


async def serve(served: Any) -> None:
    """Do what a server does from its start to its end, with one request."""
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    lifespan = asyncio.create_task(served({"type": "lifespan", "asgi": {"version": "3.0"}}, messages.get, answers.put))
    await messages.put({"type": "lifespan.startup"})
    await answers.get()
    await messages.put({"type": "http.request", "body": b"", "more_body": False})
    await served(dict(REQUEST), messages.get, answers.put)
    await messages.put({"type": "lifespan.shutdown"})
    await lifespan


def main() -> int:
    """Serve one request and print its record."""
    directory = Path(sys.argv[1])
    asyncio.run(serve(InferenceLoggingMiddleware(application, Config(directory=directory))))
    lines = (directory / "latest").read_text(encoding="utf-8").splitlines()
    requests = [line for line in lines if json.loads(line)["event_name"] == "request"]
    print(*requests, sep="\n")
    print(f"Python {platform.python_version()} on {platform.machine()}, pages of {mmap.PAGESIZE:,} bytes")
    return 0 if [json.loads(line)["url.path"] for line in requests] == ["/hello"] else 1


if __name__ == "__main__":
    sys.exit(main())
