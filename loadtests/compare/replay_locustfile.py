"""Locust sends the requests of an export at their recorded times, with the reader and the bodies of `replay`.

    locust -f loadtests/compare/replay_locustfile.py --headless -H http://127.0.0.1:8000 --export batch.jsonl --speed 2

The run ends when the last answer has come. Clients leave where the recorded ones left. For a comparison with the
recorded run: `inference-logging replay`.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gevent
from locust import events, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS
from locust.env import Environment

from inference_logging.prove.replay.events import has_content
from inference_logging.prove.replay.schedule import BODIES, TRACES, Changes, Planned, Schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # Locust puts only this folder there

from loadtests.compare import users


class ReplayUser(users.StreamingUser):
    """Sends each request at its time, whatever became of the earlier ones."""

    fixed_count = 1
    concurrency = 10_000
    schedule: ClassVar[Schedule]
    speed: ClassVar[float]

    @task
    def play(self) -> None:
        """Play the schedule."""
        self.play_open_loop((planned.offset_s / self.speed, partial(self._send, planned)) for planned in self.schedule)

    def _send(self, planned: Planned, due: float) -> None:
        headers = {"Content-Type": "application/json", "X-Request-Id": planned.request_id}
        with gevent.Timeout(planned.abort_s, False):
            self._exchange(planned, due, {name: value for name, value in headers.items() if value})

    def _exchange(self, planned: Planned, due: float, headers: dict[str, str]) -> None:
        """Lateness of the load tool is part of what a client waits: times count from ``due``."""
        with self.client.request(
            "POST", planned.path, data=planned.body.decode(), headers=headers, stream=True, catch_response=True
        ) as response:
            if response._response is None:  # no answer: a silence that ends as recorded is none of Locust's failures
                if planned.abort_s is None:
                    response.failure(response.error or "no answer")
                else:
                    response.success()
                return
            chunks = 0
            try:
                for message in users.events(response):
                    chunks += has_content(message)
                    if chunks == 1:
                        self.report_event(f"{planned.path}: time to first chunk", time.perf_counter() - due)
                    if chunks == planned.abort_chunks:
                        response._response.release()
                        break
            except FAILURE_EXCEPTIONS as error:
                response.failure(error)
            response.request_meta["response_time"] = (time.perf_counter() - due) * 1000
            if response.status_code >= 400:
                response.failure(f"status {response.status_code}")
            else:
                response.success()


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser, **_: Any) -> None:
    """Add the options of the replay."""
    group = parser.add_argument_group("Replay")
    group.add_argument("--export", type=Path, required=True, help="file that `inference-logging export` has written")
    group.add_argument(
        "--export-format", choices=[BODIES, *TRACES], help="its format, where the first row is not enough"
    )
    group.add_argument("--speed", type=float, default=1.0, help="how many times as fast as recorded")
    group.add_argument("--model", help="model to ask for, in place of the recorded one")


@events.init.add_listener
def prepare(environment: Environment, **_: Any) -> None:
    """Read the export and set up the open loop."""
    options = environment.parsed_options
    assert options is not None
    if options.speed <= 0:
        raise ValueError(f"--speed {options.speed:g}: must be above 0")
    changes = Changes({"model": options.model} if options.model else {})
    ReplayUser.schedule = Schedule(options.export, options.export_format, changes)
    ReplayUser.speed = options.speed
    # As a module's name, since Locust makes shapes of the classes that it finds here.
    shape = users.OpenLoop([], ReplayUser)
    shape.runner = environment.runner
    environment.shape_class = shape
    environment.user_classes = [ReplayUser]
