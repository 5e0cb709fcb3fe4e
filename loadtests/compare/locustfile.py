"""What Locust runs: users in a closed loop, or one that plays an arrival trace.

    locust -f loadtests/compare/locustfile.py --headless -H http://127.0.0.1:8000 -u 16 -t 30s ChatUser
    locust -f loadtests/compare/locustfile.py --headless -H http://127.0.0.1:8000 --trace-seconds 30 --trace-rate 20

The second form is the open loop: it ends when the last answer has come. `--result FILE` writes what a comparison
needs, with times finer than Locust's own statistics, which round to milliseconds.

Users are Locust's FastHttpUser: the usual client is several times slower and would be what is measured. Streaming
ones report the time to the first chunk and the gaps between chunks.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.pool
from locust import FastHttpUser, LoadTestShape, User, events, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS
from locust.env import Environment

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # Locust puts only this folder there

from inference_logging.read.stats.interval import quantile
from loadtests.compare import arrivals
from loadtests.compare.arrivals import Arrival

MAX_PROMPT_WORDS = 2000
"""Longer prompts are cut: the server makes nothing of the words, and the load tool would pay for them."""

STREAM_CHUNKS = 64
END_OF_STREAM = b"[DONE]\n\n"


class OpenLoop(LoadTestShape):
    """Keep one player alive until it has played the whole trace.

    The player starts a request per arrival, whether or not earlier ones have been answered. Locust's own way (a user
    per arrival) would round arrivals to the second, which is the pace of ``tick``.
    """

    abstract = True  # Locust takes every other shape that it finds in this file; this one is for `play_trace`

    def __init__(self, arrivals: list[Arrival]) -> None:
        """Take the `arrivals` to play."""
        super().__init__()
        self.arrivals = arrivals
        self.finished = False

    def tick(self) -> tuple[int, float, list[type[User]] | None] | None:
        """Return one player, or None (which ends the run) once the player has set `finished`."""
        return None if self.finished else (1, 1.0, [TraceUser])


class TrivialUser(FastHttpUser):
    """Ask for a few bytes, as fast as answers come: the server's own cost per request stands out most."""

    @task
    def trivial(self) -> None:
        """Send one request."""
        self.client.get("/trivial")


class StreamingUser(FastHttpUser):
    """Read server-sent events one by one and report what a person who waits for words would feel."""

    abstract = True

    def read_stream(self, method: str, path: str, *, name: str, due: float | None = None, **request: Any) -> None:
        """Send one request and report three kinds of event under `name`.

        The whole time counts as the request; ``SSE`` events are the time to the first chunk and every gap after it.
        `due` is when the request should have been sent (``perf_counter``): in an open loop, lateness of the load tool
        is part of what a client waits.
        """
        sent = time.perf_counter() if due is None else due
        with self.client.request(method, path, name=name, stream=True, catch_response=True, **request) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return
            times, size, last = [sent], 0, b""
            try:
                for last in sent_events(response):
                    size += len(last)
                    if not last.endswith(END_OF_STREAM):  # it comes with the last chunk
                        times.append(time.perf_counter())
            except FAILURE_EXCEPTIONS as error:
                response.failure(error)
            response.request_meta["response_time"] = (time.perf_counter() - sent) * 1000
            response.request_meta["response_length"] = size
            if not last.endswith(END_OF_STREAM):
                response.failure("the stream broke off")
        self._report(name, times)

    def _report(self, name: str, times: list[float]) -> None:
        labels = ["time to first chunk", *["gap between chunks"] * (len(times) - 2)]
        for label, before, after in zip(labels, times, times[1:], strict=False):
            self.environment.events.request.fire(
                request_type="SSE", name=f"{name}: {label}", response_time=(after - before) * 1000, response_length=0,
                exception=None, context={},
            )  # fmt: skip


class Stream64User(FastHttpUser):
    """Ask for a stream of 64 chunks at full pace, and read it whole: the cost per chunk stands out most.

    Chunks are not timed one by one here, since at full pace that would time the load tool.
    """

    @task
    def stream(self) -> None:
        """Send one request and check that the whole stream came."""
        with self.client.get("/stream64", catch_response=True) as response:
            if (response.content or b"").count(b"data: ") != STREAM_CHUNKS:
                response.failure(f"not {STREAM_CHUNKS} chunks")


class ChatUser(StreamingUser):
    """Ask for streamed chat answers, one after the other."""

    @task
    def chat(self) -> None:
        """Send one request of 64 tokens."""
        self.read_stream("POST", "/v1/chat/completions", name="chat", json=chat_body(16, 64, 0.0))


class TraceUser(StreamingUser):
    """Play an arrival trace: one request per arrival, at its time, whatever became of the earlier ones."""

    abstract = True  # not to be found by Locust, as above
    fixed_count = 1
    concurrency = 10_000

    @task
    def play(self) -> None:
        """Play the trace that the shape has, wait for the last answer, and end the run."""
        shape = self.environment.shape_class
        assert isinstance(shape, OpenLoop)
        pace = self.environment.parsed_options.pace if self.environment.parsed_options else 0.0
        under_way = gevent.pool.Group()
        start = time.perf_counter()
        for arrival in shape.arrivals:
            due = start + arrival.at_s
            gevent.sleep(max(0.0, due - time.perf_counter()))
            under_way.spawn(self._ask, arrival, pace, due)
        under_way.join()
        shape.finished = True
        gevent.sleep(3600)  # until the shape's next tick ends the run

    def _ask(self, arrival: Arrival, pace: float, due: float) -> None:
        body = chat_body(min(arrival.context_tokens, MAX_PROMPT_WORDS), arrival.generated_tokens, pace)
        self.read_stream("POST", "/v1/chat/completions", name="chat", due=due, json=body)


def chat_body(prompt_words: int, max_tokens: int, pace: float) -> dict[str, Any]:
    """Return a streamed chat request; `pace` is in tokens per second, 0 for the server's default."""
    body: dict[str, Any] = {
        "model": "example",
        "messages": [{"role": "user", "content": "word " * prompt_words}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {**body, "tokens_per_second": pace} if pace else body


def sent_events(response: Any) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed response as they come.

    The client's own ``iter_content`` waits until a block is full, which would hide the gaps.
    """
    stream = response._response
    while event := stream.readline(b"\n\n"):
        yield event


class Times:
    """Every request's time, since percentiles near a millisecond need more than Locust's rounded ones."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.taken_ms: defaultdict[str, list[float]] = defaultdict(list)
        self.failures: defaultdict[str, int] = defaultdict(int)
        self.types: dict[str, str] = {}
        self.began = self.ended = 0.0

    def add(
        self, request_type: str, name: str, response_time: float, exception: BaseException | None = None, **_: Any
    ) -> None:
        """Take one request event of Locust."""
        self.ended = time.perf_counter()
        self.began = self.began or self.ended - response_time / 1000
        self.types[name] = request_type
        if exception is None:
            self.taken_ms[name].append(response_time)
        else:
            self.failures[name] += 1

    def summary(self) -> dict[str, Any]:
        """Return the time from the first request to the last answer; counts and percentiles by name."""
        return {"seconds": self.ended - self.began, "requests": {name: self._row(name) for name in sorted(self.types)}}

    def _row(self, name: str) -> dict[str, str | float]:
        times = sorted(self.taken_ms[name])
        percentiles = {f"p{p}_ms": quantile(times, p / 100) for p in (50, 99) if times}
        return {"type": self.types[name], "count": len(times), "failures": self.failures[name], **percentiles}


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser, **_: Any) -> None:
    """Add the options of the open loop and of the result file."""
    group = parser.add_argument_group("Arrival trace and result")
    group.add_argument("--trace", type=Path, help="CSV of arrivals (TIMESTAMP,ContextTokens,GeneratedTokens)")
    group.add_argument("--trace-seconds", type=float, default=0.0, help="play a trace for so long (0: closed loop)")
    group.add_argument("--trace-rate", type=float, default=20.0, help="arrivals per second, on average")
    group.add_argument("--max-tokens", type=int, default=256, help="cap of the answers' lengths in a trace")
    group.add_argument("--pace", type=float, default=200.0, help="tokens per second of each answer in a trace")
    group.add_argument("--result", type=Path, help="write counts and times to this JSON file")


@events.init.add_listener
def prepare(environment: Environment, **_: Any) -> None:
    """Set up the open loop and the result file, where asked for."""
    options = environment.parsed_options
    assert options is not None
    if options.trace_seconds:
        play_trace(environment, options)
    if options.result:
        times = Times()
        environment.events.request.add_listener(times.add)
        environment.events.quitting.add_listener(lambda **_: options.result.write_text(json.dumps(times.summary())))


def play_trace(environment: Environment, options: Namespace) -> None:
    """Make `environment` play the trace instead of running closed-loop users."""
    trace = arrivals.read(arrivals.find(options.trace, Path("out")))
    fitted = arrivals.fit(trace, rate=options.trace_rate, seconds=options.trace_seconds, max_tokens=options.max_tokens)
    shape = OpenLoop(fitted)
    shape.runner = environment.runner
    environment.shape_class = shape
    environment.user_classes = [TraceUser]
