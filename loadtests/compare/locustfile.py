"""What Locust runs: the users of users.py, in a closed loop or over an arrival trace.

    locust -f loadtests/compare/locustfile.py --headless -H http://127.0.0.1:8000 -u 16 -t 30s ChatUser
    locust -f loadtests/compare/locustfile.py --headless -H http://127.0.0.1:8000 --trace-seconds 30 --trace-rate 20

The second form is the open loop: it ends when the last answer has come. `--result FILE` writes what a comparison
needs, with times finer than Locust's own statistics, which round to milliseconds.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

from locust import events
from locust.env import Environment

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # Locust puts only this folder there

from inference_logging.read.stats.interval import quantile
from loadtests.compare import arrivals, users
from loadtests.compare.users import ChatUser, Stream64User, TrivialUser

__all__ = ["ChatUser", "Stream64User", "TrivialUser"]


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
    shape = users.OpenLoop(fitted)
    shape.runner = environment.runner
    environment.shape_class = shape
    environment.user_classes = [users.TraceUser]
