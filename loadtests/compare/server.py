"""The server under test: one app, one worker, and a choice of how its requests are logged.

    python -m loadtests.compare.server --mode ours --port 8000 --directory out/logs

The app is that of examples/fastapi with two routes added: `/trivial`, and `/stream64` (64 chunks at full pace).
Everything but the logging is the same in all modes: httptools, uvloop, one process, one core if `--core` is given.
With `--counts FILE` the number of requests that reached the app is written at exit, counted apart from any logging,
so that records can be checked against it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse

from loadtests import harness
from loadtests.compare.baselines import StdlibLogging
from loadtests.harness import HOST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MODES = ("none", "uvicorn-access", "stdlib-file", "stdlib-queue", "ours")

_CHUNK = b'data: {"id":"gen-1","object":"text_completion","choices":[{"index":0,"text":"word "}]}\n\n'
_LAST_CHUNK = (
    b'data: {"id":"gen-1","object":"text_completion","model":"example",'
    b'"choices":[{"index":0,"text":"word ","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":64,"total_tokens":65}}\n\n'
)
STREAM = (*[_CHUNK] * 63, _LAST_CHUNK)


class Counted:
    """Count the requests that reach an app. It hands on the app's own coroutine, so it costs a fraction of a µs."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self.app = app
        self.accepted = 0

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass everything through."""
        self.accepted += scope["type"] == "http"
        return self.app(scope, receive, send)


def build_app(mode: str, directory: Path) -> FastAPI:
    """Return the example's app with the two added routes, logged as `mode` says."""
    os.environ["INFERENCE_LOGGING_DIRECTORY"] = str(directory)
    os.environ["INFERENCE_LOGGING_SERVER_RECORD"] = "off"  # requests and their records are counted
    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "fastapi"))
    import app as example

    app: FastAPI = example.app
    app.add_api_route("/trivial", trivial)
    app.add_api_route("/stream64", stream64)
    if mode != "ours":
        app.user_middleware.clear()
        baseline = StdlibLogging(mode, directory)
        vars(example)["log"] = baseline
        if mode.startswith("stdlib"):
            app.add_middleware(baseline.middleware)
    return app


async def trivial() -> PlainTextResponse:
    """Answer with a few bytes."""
    return PlainTextResponse("ok")


async def stream64() -> StreamingResponse:
    """Answer with 64 server-sent events, as fast as they go."""
    return StreamingResponse(_chunks(), media_type="text/event-stream")


async def _chunks() -> AsyncIterator[bytes]:
    for chunk in STREAM:
        yield chunk


def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT, then write the counts."""
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    options.directory.mkdir(parents=True, exist_ok=True)
    app = Counted(build_app(options.mode, options.directory))
    access = options.mode == "uvicorn-access"
    fd = options.fd if options.fd is not None else socket.create_server((HOST, options.port)).detach()
    level = "info" if access else "warning"
    harness.serve(app, fd, http="httptools", access_log=access, log_level=level)
    if options.counts:
        options.counts.write_text(json.dumps({"accepted": app.accepted}))


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="ours")
    parser.add_argument("--port", type=int, default=8000, help="loopback port; 8000 unless given")
    parser.add_argument("--fd", type=int, help="an inherited listening socket, instead of a port")
    parser.add_argument("--directory", type=Path, default=Path("out/logs"), help="where the log goes")
    parser.add_argument("--core", type=int, help="the one core to run on")
    parser.add_argument("--counts", type=Path, help="write the number of requests to this file at exit")
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
