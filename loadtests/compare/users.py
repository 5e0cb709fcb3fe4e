"""Locust users: plain ones, and streaming ones that report the time to the first chunk and the gaps between chunks.

They use Locust's FastHttpUser, because the usual client is several times slower and would be what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gevent
import gevent.pool
from locust import FastHttpUser, LoadTestShape, User, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS

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

    abstract = False

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
                for last in events(response):
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


def events(response: Any) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed response as they come.

    The client's own ``iter_content`` waits until a block is full, which would hide the gaps.
    """
    stream = response._response
    while event := stream.readline(b"\n\n"):
        yield event
