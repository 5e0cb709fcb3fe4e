"""The server of `bench_turns`: FastAPI on uvicorn with the arms behind one switch, in a process on one core.

Its parent asks it over HTTP, on paths that no arm sees: ``/turns/restart?N`` begins a measurement with slices of N
requests, ``/turns/pause`` ends one of wrk's runs and answers with what all of them have given since the restart. With
SIGTERM the server ends once it has compared the requests of each arm of ours with its records.

A slice is a number of consecutive requests for one arm; a block is one slice of each arm in random order. The clock is
read where a slice's first request reaches the switch, so what the server does after an answer, and with the bytes of
the next request, is in the slice. What is not a whole block when the measurement starts or pauses is left out.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from inference_logging.record.asgi.lifespan import ASGIApp, Receive, Scope, Send
from loadtests import harness
from loadtests.compare.server import stream64, trivial
from loadtests.cost.loggers import DRAIN_S
from loadtests.turns.bench_turns_arms import NAMES, Arms
from loadtests.turns.bench_turns_rows import Block

CONTROL_PATH: Final = "/turns/"
Clock = Callable[[], int]
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


class ChatMessage(BaseModel):
    """One message of a chat."""

    role: str
    content: str


class Ask(BaseModel):
    """The body of a request for a chat completion."""

    model: str
    messages: list[ChatMessage]
    max_tokens: int = 256
    temperature: float = 1.0
    stream: bool = False


async def complete(ask: Ask) -> JSONResponse:
    """Answer with a chat completion."""
    return JSONResponse({**ANSWER, "model": ask.model})


async def work() -> PlainTextResponse:
    """Answer after about a millisecond of work in Python."""
    _burn(_loops())
    return PlainTextResponse("ok")


def _burn(loops: int) -> None:
    for _ in range(loops):
        pass


@cache
def _loops() -> int:
    """Return how many passes take a millisecond, by the quickest of some tries."""

    def took_ns() -> int:
        started = time.thread_time_ns()
        _burn(100_000)
        return time.thread_time_ns() - started

    return round(100_000 * 1e6 / min(took_ns() for _ in range(20)))


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


class Slices:
    """The turns of the arms, and the blocks that are whole, by ``clock``."""

    def __init__(self, arms: int, clock: Clock = time.thread_time_ns, seed: int = 0) -> None:
        self._arms = arms
        self.blocks: list[Block] = []
        self.begun: list[tuple[int, int]] = []
        """Monotonic nanoseconds and the arm of each slice; -1 where the measurement was paused."""
        self._clock = clock
        self._random = random.Random(seed)
        self.pause()

    def pause(self) -> None:
        """Leave out the block that has begun, and the one after it."""
        self.begun.append((time.monotonic_ns(), -1))
        self._order: list[int] = []
        self._taken = [0] * self._arms
        self._arm: int | None = None
        self._is_warm = False
        self._since = 0

    def begin(self) -> int:
        """Begin a slice, and return the arm whose turn it is."""
        if not self._order:
            self._order = self._random.sample(range(self._arms), self._arms)
        self._arm = self._order.pop()
        self.begun.append((time.monotonic_ns(), self._arm))
        self._since = self._clock()
        return self._arm

    def end(self) -> None:
        """End the slice that has begun, if there is one."""
        now = self._clock()
        if self._arm is None:
            return
        self._taken[self._arm] = now - self._since
        if not self._order:
            if self._is_warm:
                self.blocks.append(tuple(self._taken))
            self._is_warm = True


class Switch:
    """An ASGI application that hands each request to the arm whose turn it is, and counts what each one got."""

    def __init__(self, arms: Sequence[ASGIApp], slices: Slices) -> None:
        self.slices = slices
        self.served = [0] * len(arms)
        self._arms = arms
        self._arm = 0
        self._app = arms[0]
        self._requests = 1
        self._left = 0

    def restart(self, requests: int) -> None:
        """Begin a measurement with slices of ``requests`` requests."""
        self.pause()
        self._requests = requests
        self.slices.blocks.clear()
        self.slices.begun.clear()

    def pause(self) -> None:
        """Leave the current block out."""
        self.served[self._arm] -= self._left
        self._left = 0
        self.slices.pause()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[Any]:
        """Serve one HTTP request with the arm's own coroutine."""
        if not self._left:
            self._turn()
        self._left -= 1
        return self._app(scope, receive, send)

    def _turn(self) -> None:
        self.slices.end()
        self._arm = self.slices.begin()
        self._app = self._arms[self._arm]
        self._left = self._requests
        self.served[self._arm] += self._requests


class Front:
    """The ASGI application of the process: the parent's questions, the lifespan, and the switch for all else."""

    def __init__(self, names: Sequence[str], arms: Arms, clock: Clock) -> None:
        apps = [arms.make(name) for name in names]
        self.switch = Switch(apps, Slices(len(apps), clock))
        self._first = apps[0]
        self._names = names
        self._loggers = arms.loggers

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[Any]:
        """Serve one scope."""
        if scope["type"] != "http":
            return self._first(scope, receive, send)
        if scope["path"].startswith(CONTROL_PATH):
            return JSONResponse(self._answer(scope))(scope, receive, send)
        return self.switch(scope, receive, send)

    def _answer(self, scope: Scope) -> dict[str, Any]:
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
