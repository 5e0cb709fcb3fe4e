"""The server of `bench_turns`: FastAPI on uvicorn with the arms behind one switch, in a process on one core.

Its parent asks it over HTTP, on paths that no arm sees: ``/turns/restart?N`` begins a measurement with slices of N
requests, ``/turns/pause`` ends one of wrk's runs and answers with what all of them have given since the restart. With
SIGTERM the server ends once it has compared the requests of each arm of ours with its records.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Awaitable, MutableMapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loadtests import harness
from loadtests.compare.server import stream64, trivial
from loadtests.cost.bench_loggers import DRAIN_S
from loadtests.turns.bench_turns_arms import NAMES, Arms
from loadtests.turns.bench_turns_slices import Clock, Receive, Send, Slices, Switch

CONTROL_PATH: Final = "/turns/"
CLOCKS: Final[dict[str, Clock]] = {"thread": time.thread_time_ns, "process": time.process_time_ns}
"""Of the event loop's thread, or of the process, the listener's thread included."""

ANSWER: Final[dict[str, Any]] = {
    "id": "chatcmpl-7d9f3c1e5b1a4f0e9c583a1b2c3d4e5f",
    "object": "chat.completion",
    "created": 1714564800,
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "A ring buffer is a block of memory of fixed size that is used as if its end were joined to "
                "its beginning. A writer puts items in at one position and a reader takes them out at another; when "
                "either reaches the end it goes on at the start, so nothing is ever moved.",
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 34, "completion_tokens": 58, "total_tokens": 92},
}


class Message(BaseModel):
    """One message of a chat."""

    role: str
    content: str


class Ask(BaseModel):
    """The body of a request for a chat completion."""

    model: str
    messages: list[Message]
    max_tokens: int = 256
    temperature: float = 1.0
    stream: bool = False


async def complete(ask: Ask) -> JSONResponse:
    """Answer with a chat completion."""
    return JSONResponse({**ANSWER, "model": ask.model})


async def work() -> PlainTextResponse:
    """Answer after about a millisecond of work in Python."""
    _burn(LOOPS)
    return PlainTextResponse("ok")


def _burn(loops: int) -> None:
    for _ in range(loops):
        pass


def _loops() -> int:
    """Return how many passes take a millisecond, by the quickest of some tries."""

    def took_ns() -> int:
        started = time.thread_time_ns()
        _burn(100_000)
        return time.thread_time_ns() - started

    return round(100_000 * 1e6 / min(took_ns() for _ in range(20)))


LOOPS: Final = _loops()


def application() -> FastAPI:
    """Return the application; each arm has one."""
    app = FastAPI()
    app.add_api_route("/trivial", trivial)
    app.add_api_route("/stream64", stream64)
    app.add_api_route("/v1/chat/completions", complete, methods=["POST"])
    app.add_api_route("/work", work)
    return app


class Quiet(HttpToolsProtocol):
    """uvicorn's protocol with its access log set up, and off unless an arm switches it on."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.access_log = False


class Front:
    """The ASGI application of the process: the parent's questions, the lifespan, and the switch for all else."""

    def __init__(self, names: Sequence[str], arms: Arms, clock: Clock) -> None:
        apps = [arms.make(name) for name in names]
        self.switch = Switch(apps, Slices(len(apps), clock))
        self._first = apps[0]
        self._names = names
        self._loggers = arms.loggers

    def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> Awaitable[Any]:
        """Serve one scope."""
        if scope["type"] != "http":
            return self._first(scope, receive, send)
        if scope["path"].startswith(CONTROL_PATH):
            return JSONResponse(self._answer(scope))(scope, receive, send)
        return self.switch(scope, receive, send)

    def _answer(self, scope: MutableMapping[str, Any]) -> dict[str, Any]:
        if scope["path"] == f"{CONTROL_PATH}restart":
            self.switch.restart(int(scope["query_string"]))
            gc.collect()
            gc.freeze()
        else:
            self.switch.pause()
        for logger in self._loggers.values():
            logger.flush(DRAIN_S)
        return {"blocks": self.switch.slices.blocks, "begun": self.switch.slices.begun}

    def check_books(self) -> None:
        """Raise unless each request to an arm of ours has its record."""
        for name, logger in self._loggers.items():
            logger.flush(DRAIN_S)
            books, served = logger.stats(), self.switch.served[self._names.index(name)]
            if not books["accepted"] == books["written"] == served:
                raise RuntimeError(f"{served} requests were served by the arm {name}, but the books say {books}")


def serve(fd: int, core: int, directory: Path, clock: str, names: Sequence[str]) -> None:
    """Serve on an inherited socket until SIGTERM."""
    os.environ["INFERENCE_LOGGING_SERVER_RECORD"] = "off"  # requests and their records are counted
    os.sched_setaffinity(0, {core})  # before the listeners' threads, which inherit it
    with ExitStack() as stack:
        front = Front(names, Arms(application, directory, stack), CLOCKS[clock])
        harness.serve(front, fd, http=Quiet)
        front.check_books()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fd", type=int, required=True, help="an inherited listening socket")
    parser.add_argument("--core", type=int, required=True, help="the one core to run on")
    parser.add_argument("--directory", type=Path, required=True, help="where the log goes")
    parser.add_argument("--clock", choices=CLOCKS, default="thread", help="whose CPU time a slice is")
    parser.add_argument("arms", nargs="+", choices=NAMES, metavar="ARM", help=f"one of {', '.join(NAMES)}")
    given = parser.parse_args()
    serve(given.fd, given.core, given.directory, given.clock, given.arms)
