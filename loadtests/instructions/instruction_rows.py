"""What `bench_instructions` counts: each row's work, done in process between two marks that callgrind reads.

Started by `bench_instructions` below valgrind, with the path of the compiled `callgrind_marks.c` and the names of rows.
A row has parts with weights: the work with logging, and the same work without it, which is taken off. Nothing listens,
so all that runs is what the loop runs; the queue has room for every record. A coroutine is driven by hand, so that no
event loop is in the counts.

The rows that use `current_request` or `Handler` import it: a process that has imported it pays for it in each request.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.prove.bench.configurations_round import GET, ignore
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send
from loadtests.turns.thinnest import Thinnest

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = 256
FEW: Final = 64
BATCH: Final = 8

Work = Callable[[], None]
Prepare = Callable[[int], Work]
Headers = tuple[tuple[bytes, bytes], ...]


def _delta(**delta: str) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    chunk = {"id": "chatcmpl-" + "0" * 32, "object": "chat.completion.chunk", "created": 1, "model": "meta-llama"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]}, separators=(',', ':'))}\n\n".encode()


STREAMS: Final = {
    "stream": (b'data: {"id":"gen-1","object":"text_completion","choices":[{"index":0,"text":"word "}]}\n\n',),
    "chat": (_delta(content="word "),),
    "mixed": (_delta(content="word "), _delta(reasoning_content="hm")),
}
"""Events of about 90 and 200 bytes, all of one shape or of two in turn."""
MESSAGES: Final = [{"role": "user", "content": "What is the airspeed of an unladen swallow?"}]
BODY: Final = json.dumps({"model": "meta/llama-3-8b", "max_tokens": 16, "messages": MESSAGES}).encode()
CHOICE: Final = {"index": 0, "message": {"role": "assistant", "content": "word " * 16}, "finish_reason": "stop"}
USAGE: Final = {"prompt_tokens": 12, "completion_tokens": 16, "total_tokens": 28}
ANSWER: Final = json.dumps(
    {"id": "chatcmpl-1", "object": "chat.completion", "model": "meta/llama-3-8b", "choices": [CHOICE], "usage": USAGE}
).encode()
CLIENT_HEADERS: Final = (
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"user-agent", b"OpenAI/Python 1.50.0"),
    (b"authorization", b"Bearer 0123456789abcdef"),
)
POST_HEADERS: Final = ((b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode()))
TRACE_HEADERS: Final = ((b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)

IDENTITY_HEADERS: Final = ((b"x-tenant", b"acme"), (b"x-user", b"user-0123456789"))
RECORDED: Final = ("x-tenant=tenant.id", "x-user=enduser.id", "authorization:hash=api_key.hash")


@dataclass(frozen=True)
class Row:
    """Parts, each with its weight, and how many units (requests, chunks, records) their weighted sum stands for."""

    parts: tuple[tuple[float, Prepare], ...]
    units: float
    count: int = COUNT


class Rows:
    """The rows by name. Each method opens what its row needs; ``stack`` closes it."""

    def __init__(self, stack: ExitStack, wrap: Callable[[ASGIApp], ASGIApp] | None = None) -> None:
        """Take ``wrap`` in place of our middleware, if it is given."""
        self.config = Config()
        self._stack = stack
        self._wrap = wrap or (lambda app: InferenceLoggingMiddleware(app, self.config))

    def get(self) -> Row:
        """Serve a GET by the smallest ASGI application there is."""
        return self._requests(bare, "/hello")

    def fastapi(self) -> Row:
        """Serve the same GET by FastAPI."""
        logged, plain = _fastapi(), _fastapi()
        logged.add_middleware(InferenceLoggingMiddleware, config=self.config)
        return Row(((1, _served(logged, "/hello")), (-1, _served(plain, "/hello"))), COUNT)

    def post(self) -> Row:
        """Serve a chat completion whose answer has its usage."""
        return self._requests(bare, "/v1/chat/completions", POST_HEADERS)

    def traceparent(self) -> Row:
        """Serve the GET of a client that sends a trace context."""
        return self._requests(bare, "/hello", TRACE_HEADERS)

    def sets(self) -> Row:
        """Serve the GET by an application that sets an id and an attribute of the request."""
        from inference_logging import current_request

        async def setting(scope: Scope, receive: Receive, send: Send) -> None:
            request = current_request()
            if request is not None:
                request.set(**{"tenant.id": "acme"}, retries=2)
            await bare(scope, receive, send)

        return self._requests(setting, "/hello")

    def identity(self) -> Row:
        """Serve the GET where three of the client's headers are recorded, one of them as a keyed hash."""
        key = self.config.directory.with_name("hash.key")
        key.write_bytes(bytes(32))
        self.config = Config(record_headers=RECORDED, capture_hash_key_file=key)
        return self._requests(bare, "/hello", IDENTITY_HEADERS)

    def chunk(self) -> Row:
        """Serve a stream of 64 chunks, and take off one of 32."""
        return self._chunks("stream")

    def chunk_chat(self) -> Row:
        """Serve the same of a chat, whose events are longer and which is asked for by JSON, so that facts are kept."""
        return self._chunks("chat", POST_HEADERS)

    def chunk_mixed(self) -> Row:
        """Serve the same of content and reasoning in turn, so that the JSON of each event is walked."""
        return self._chunks("mixed", POST_HEADERS)

    def _chunks(self, stream: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Row:
        long, short = (self._requests(bare, f"/{stream}/{chunks}", headers).parts for chunks in (64, 32))
        return Row((*long, *((-weight, part) for weight, part in short)), 32 * FEW, FEW)

    def emit(self) -> Row:
        """Emit an event with ten fields."""
        from loadtests.cost.loggers import EVENT, FIELDS, emit_many, empty_call

        call = self._stack.enter_context(Logger(self.config)).event(EVENT, FIELDS)
        return self._calls(lambda count: emit_many(call, count), lambda count: emit_many(empty_call, count))

    def logger(self) -> Row:
        """Record an application event with ten fields."""
        self._stack.enter_context(Logger(self.config))
        info = get_logger("bench").info
        return self._calls(lambda count: _call_many(info, count), lambda count: _call_many(_nothing, count))

    def native(self) -> Row:
        """Record the same as a standard library's call where `install_logger` has set the class of loggers."""
        from inference_logging import Handler
        from inference_logging.record.integrations.native_logger import NativeLogger

        self._stack.enter_context(Logger(self.config))
        info = _library_logger(Handler(), NativeLogger).info
        return self._calls(partial(_say_many_with_extra, info), partial(_say_many_with_extra, _ignore))

    def handler(self) -> Row:
        """Record a message of the standard library's loggers, and take off what a `NullHandler` does with it."""
        return self._handled(_say_many)

    def handler_extra(self) -> Row:
        """Record the same with ten attributes in ``extra``, and take off the same."""
        return self._handled(_say_many_with_extra)

    def _handled(self, say: Callable[[Callable[..., object], int], None]) -> Row:
        from inference_logging import Handler

        self._stack.enter_context(Logger(self.config))
        ours, null = (_library_logger(handler).info for handler in (Handler(), logging.NullHandler()))
        return self._calls(partial(say, ours), partial(say, null))

    def triton(self) -> Row:
        """Serve batches of a Triton model."""
        return Row(((1, self._batches(logs=True)), (-1, self._batches(logs=False))), BATCH * COUNT)

    def listener(self) -> Row:
        """Write the records of GETs as `inference-logging recover` does, many of them, and take off few."""
        # It waits as long as it takes; its producer waits for nobody.
        self.config = Config(drain_deadline_s=60)
        # The process that makes them lives on, as a server does; its threads are not in the counts.
        command = [sys.executable, __file__, "fill"]
        filler = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stack.callback(filler.communicate)
        # All are one write of the listener's, of at most 1 MiB: of a process that lives on, `recover` takes no more.
        many, few = partial(self._recovery, filler, 5), partial(self._recovery, filler, 1)
        return Row(((1, many), (-1, few)), 4 * COUNT)

    def _requests(self, app: ASGIApp, path: str, headers: Headers = ()) -> Row:
        wrapped = _served(self._wrap(app), path, headers)
        return Row(((1, wrapped), (-1, _served(app, path, headers))), COUNT)

    def _calls(self, logged: Callable[[int], None], plain: Callable[[int], None]) -> Row:
        return Row(tuple((weight, partial(partial, work)) for weight, work in ((1, logged), (-1, plain))), COUNT)

    def _batches(self, *, logs: bool) -> Prepare:
        sys.path.append(str(ROOT))
        import pytest

        from inference_logging.triton import log_requests
        from tests.kit import fake_triton

        fake_triton.install(pytest.MonkeyPatch())
        answers = [fake_triton.ok() for _ in range(BATCH)]

        class Model:
            def execute(self, _requests: list[Any]) -> list[Any]:
                return answers

        model: Any = Model()
        if logs:
            model = log_requests(Model)()
            model.initialize(fake_triton.arguments())
            self._stack.callback(model.finalize)
        tensor = fake_triton.Tensor("X", [[1.0, 2.0]])

        def prepare(count: int) -> Work:
            batches = [[fake_triton.request(tensor, name="r-1") for _ in range(BATCH)] for _ in range(count)]

            def work() -> None:
                for batch in batches:
                    model.execute(batch)

            return work

        return prepare

    def _recovery(self, filler: subprocess.Popen[str], times: int, count: int) -> Work:
        from inference_logging.cli import native

        assert filler.stdin
        assert filler.stdout
        print(times * count, file=filler.stdin, flush=True)
        filler.stdout.readline()

        def work() -> None:
            if native.run(["recover", "--json"], self.config):
                raise RuntimeError("the records could not be written")

        return work

    def fill(self, orders: Iterable[str]) -> None:
        """Leave as many records in the queue as each line says, and answer with a line."""
        served = _served(InferenceLoggingMiddleware(bare, self.config), "/hello")
        for order in orders:
            served(int(order))()
            print(flush=True)


class Marks:
    """What says when callgrind counts, and under which name."""

    def __init__(self, library: str) -> None:
        self._marks = ctypes.CDLL(library)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let callgrind count; without that a program runs ten times as fast."""
        self._marks.start()
        yield
        self._marks.stop()

    def counted(self, name: str, work: Work) -> None:
        """Do ``work``, and dump what it cost as ``name``."""
        zero, dump, encoded = self._marks.zero, self._marks.dump, name.encode()
        zero()
        work()
        dump(encoded)


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer ``/hello`` with a few bytes, ``/stream/N`` and its like with N chunks, all else with a completion."""
    path: str = scope["path"]
    if path == "/hello":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"ok"})
    elif (events := STREAMS.get(path.split("/")[1])) is not None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(int(path.rpartition("/")[2])):
            await send({"type": "http.response.body", "body": events[number % len(events)], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": ANSWER})


async def _receive() -> Message:
    return {"type": "http.request", "body": BODY, "more_body": False}


def _served(app: ASGIApp, path: str, headers: Headers = ()) -> Prepare:
    method = "POST" if headers is POST_HEADERS else "GET"
    own = {"method": method, "path": path, "raw_path": path.encode()}

    def prepare(count: int) -> Work:
        scopes = [{**GET.scope(), **own, "headers": [*CLIENT_HEADERS, *headers]} for _ in range(count)]

        def work() -> None:
            for scope in scopes:
                _run(app(scope, _receive, ignore))

        return work

    return prepare


def _fastapi() -> Any:
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    app = FastAPI()

    @app.get("/hello")
    async def hello() -> PlainTextResponse:
        return PlainTextResponse("ok")

    return app


def _run(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise RuntimeError("the application waits for something that this driver does not have")


def _call_many(call: Callable[..., object], count: int) -> None:
    for _ in range(count):
        call(
            "answered", method="POST", path="/v1/chat/completions", status=200, duration_s=0.0123,
            model="llama-3.1-8b", stream=True, error=None, tokens=128, user="user-7f3a9c", cost=0.5,
        )  # fmt: skip


def _library_logger(handler: logging.Handler, kind: type[logging.Logger] = logging.Logger) -> logging.Logger:
    logger = kind("bench", logging.INFO)  # outside the tree, with one handler
    logger.manager = logging.Logger.manager  # as `logging.getLogger` does it
    logger.addHandler(handler)
    return logger


def _ignore(_message: object, *, extra: object) -> None:
    pass


def _say_many(call: Callable[..., object], count: int) -> None:
    for _ in range(count):
        call("answered")


def _say_many_with_extra(call: Callable[..., object], count: int) -> None:
    for _ in range(count):
        call("answered", extra={
            "method": "POST", "path": "/v1/chat/completions", "status": 200, "duration_s": 0.0123,
            "model": "llama-3.1-8b", "stream": True, "error": None, "tokens": 128, "user": "user-7f3a9c", "cost": 0.5,
        })  # fmt: skip


def _nothing(
    _message: object, *, method: object, path: object, status: object, duration_s: object, model: object,
    stream: object, error: object, tokens: object, user: object, cost: object,
) -> None:  # fmt: skip
    pass


async def _measure(marks: Marks, names: list[str]) -> dict[str, Any]:
    # In a coroutine because frameworks ask for the running loop.
    found = {}
    for name in names:
        with ExitStack() as stack:
            kind = name.removeprefix("thinnest_")
            row: Row = getattr(Rows(stack, Thinnest if kind != name else None), kind)()
            found[name] = {"units": row.units, "weights": [weight for weight, _ in row.parts]}
            with marks.on():
                for position, (_, prepare) in enumerate(row.parts):
                    prepare(FEW)()
                    marks.counted(f"{name}/{position}", prepare(row.count))
    return found


def main() -> None:
    """``count LIBRARY ROW…``: do the work of these rows, and print what the counts stand for. ``fill``: see there."""
    command, *rest = sys.argv[1:]
    if command == "fill":
        with ExitStack() as stack:
            Rows(stack).fill(sys.stdin)
            os._exit(0)  # an orderly end would wait for a listener
    gc.disable()
    library, *names = rest
    print(json.dumps(asyncio.run(_measure(Marks(library), names))))


if __name__ == "__main__":
    main()
