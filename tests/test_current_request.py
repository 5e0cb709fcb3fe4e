"""The request under way is set in the context from the moment on at which something in the process could ask for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_APP = """
import asyncio, contextvars, sys
from inference_logging import Config, InferenceLoggingMiddleware

async def receive():
    return {"type": "http.request", "body": b"", "more_body": False}

sent = []
async def send(message):
    sent.append(message)

def scope():
    return {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None, "http_version": "1.1"}

def served(app, requests=1):
    config = Config(directory=sys.argv[1] + "/logs", queue_directory=sys.argv[1] + "/queue")
    middleware = InferenceLoggingMiddleware(app, config)
    async def run():
        for _ in range(requests):
            await middleware(scope(), receive, send)
        middleware._close()
    asyncio.run(run())

def in_context():
    return [value for var, value in contextvars.copy_context().items() if var.name == "inference_logging.request"]
"""

_CASES = {
    "nobody asks, and nothing is set": """
async def app(scope, receive, send):
    assert in_context() == [], in_context()
served(app, 2)
""",
    "an import before the first request": """
from inference_logging import current_request
async def app(scope, receive, send):
    assert len(current_request().trace_id) == 32
    assert in_context() == [current_request()]
    assert await asyncio.create_task(child()) == current_request().request_id
async def child():
    return current_request().request_id
served(app)
assert current_request() is None
""",
    "an import within a request": """
seen = []
async def app(scope, receive, send):
    from inference_logging import current_request
    async def child():
        return current_request()
    seen.append(current_request())
    assert await asyncio.create_task(child()) is seen[-1] is not None
    assert await asyncio.to_thread(current_request) is seen[-1]
async def after(scope, receive, send):
    await app(scope, receive, send)
served(after, 2)
assert seen[0].trace_id != seen[1].trace_id
assert in_context() in ([], [None]), in_context()
""",
    "a logger within a request": """
seen = []
async def app(scope, receive, send):
    from inference_logging import get_logger
    get_logger("late").info("within")
    seen.extend(in_context())
served(app)
assert len(seen) == 1 and seen[0].trace_id
""",
    "a handler of the standard library": """
import logging
from inference_logging import Handler
handler = Handler()
async def app(scope, receive, send):
    assert len(in_context()) == 1
served(app)
""",
}


@pytest.mark.parametrize("case", _CASES)
def test_code_that_asks_knows_the_request_under_way(tmp_path: Path, case: str) -> None:
    subprocess.run([sys.executable, "-c", _APP + _CASES[case], str(tmp_path)], check=True, timeout=180)
