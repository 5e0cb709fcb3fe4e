"""Histograms and counts when listeners are killed at any moment: each record is counted exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from tests.support import Client, answer, body_messages, http_scope, read_records, replying, wait_until
from tests.test_processes import in_child

KILLS = 15
SCOPE = ("/v1/chat/completions", "POST", [(b"content-type", b"application/json")])


def serve_until_killed(config: Config, tell: int) -> NoReturn:
    """Listen, and answer requests for inference; write to ``tell`` when this process listens and has answered some."""
    logger = Logger(config)
    app = InferenceLoggingMiddleware(replying(*answer(b'{"model":"m"}', content_type=b"application/json")), config)
    wait_until(lambda: logger.stats()["listener"]["leader_pid"] == os.getpid(), "this process to listen")

    async def serve(requests: int) -> None:
        for _ in range(requests):
            client = Client(body_messages(b'{"model":"m"}'))
            await app(http_scope(*SCOPE), client.receive, client.send)

    asyncio.run(serve(200))
    os.write(tell, b"x")
    while True:
        asyncio.run(serve(10))


def counted(histograms: list[dict[str, Any]]) -> float:
    """Return how many requests the histograms of durations hold."""
    durations = [one for one in histograms if one["name"] == "gen_ai_server_request_duration_seconds"]
    return float(sum(one["buckets"][-1][1] for one in durations))


def test_each_request_is_counted_once_whenever_its_listener_is_killed(configure: Callable[..., Config]) -> None:
    # Each writes all the time, so some die between the write, the count and the release of a batch.
    config = configure(flush_records=1, flush_interval_s=0.01)
    started, tell = os.pipe()
    for _ in range(KILLS):
        pid = in_child(lambda: serve_until_killed(config, tell))
        assert os.read(started, 1) == b"x"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with Logger(config) as logger:
        while logger.backlog_records():
            assert logger.flush()
        records = read_records(config.directory, "request")
        assert len(records) >= KILLS * 200
        inferences = [record for record in records if "gen_ai.operation.name" in record]
        assert counted(logger.service.gen_ai_histograms()) == len(inferences)
        # Killed before a request's body was read, nobody knows that it is one for inference.
        assert {record["outcome"] for record in records if record not in inferences} <= {"process_died"}
        totals = logger.service.totals()
    assert totals["written"] == len(records)
    # One that was killed in the middle of an emit leaves a record that nobody can read.
    assert totals["accepted"] == totals["written"] + sum(totals["dropped"]["torn"].values())
    assert totals["queues"] == KILLS + 1
    os.close(started)
    os.close(tell)
