"""Real servers and the proxy: what a client saw, by its own clock, against what is recorded."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from inference_logging import Config, Logger
from tests.kit.proxies import Start
from tests.kit.servers import serving
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until
from tests.truth.catalogue import STREAMS, is_stream
from tests.truth.client import Asking, Seen
from tests.truth.events import CHUNKS, FIELDS, Kind, truth
from tests.truth.player import BEGUN, STARTED, Script
from tests.truth.table import Comparison

pytestmark = pytest.mark.servers

AT_LENGTH = os.environ.get("TRUTH_AT_LENGTH", "") not in ("", "0")
"""Every stream instead of one of each kind."""

APPLICATION = "tests.truth.player:app"
SERVERS = {
    "uvicorn": ("uvicorn", APPLICATION, "--port", "{port}", "--no-access-log", "--timeout-graceful-shutdown", "1"),
    "hypercorn": ("hypercorn", APPLICATION, "--bind", "127.0.0.1:{port}", "--graceful-timeout", "1"),
    "granian": ("granian", "--interface", "asgi", "--port", "{port}", "--workers-kill-timeout", "1", APPLICATION),
}
BEHIND_THE_PROXY = ("uvicorn", "tests.truth.player:play", "--port", "{port}", "--no-access-log")

USUAL = (
    ("chat", "plain"),
    ("chat", "keep-alives first"),
    ("chat", "reasoning, then tool calls"),
    ("chat", "error after text"),
    ("chat", "error at once"),
    ("chat", "all, error"),
    ("completions", "plain"),
    ("responses", "plain"),
    ("responses", "tool call"),
    ("responses", "incomplete"),
    ("responses", "failed"),
    ("responses", "document, failed"),
    ("messages", "pings first"),
    ("messages", "thinking"),
    ("messages", "error after text"),
    ("audio", "plain"),
    ("ollama", "thinking"),
    ("ollama", "error after text"),
    ("gemini", "thought"),
    ("gemini", "error after text"),
    ("tgi", "error after text"),
    ("llama.cpp", "plain"),
    ("triton", "plain"),
    ("unknown", "text"),
    ("embeddings", "document"),
)
OPEN = (("chat", "keep-alives first", 2), ("chat", "keep-alives first", 4), ("messages", "pings first", 5))
"""Streams that are open when a server ends, and after how many events."""

TOLERANCE_S = 0.001
"""Clocks have ticks, and a sleep may end one early."""


def scripts() -> Iterator[Script]:
    """Give the scripts of a run."""
    names = [(stream.api, stream.shape) for stream in STREAMS] if AT_LENGTH else USUAL
    for api, shape in names:
        yield Script(api, shape)
    for cut in ("2 events a message", "3 messages an event"):
        for name in (
            names if AT_LENGTH else (("chat", "plain"), ("messages", "pings first"), ("chat", "error after text"))
        ):
            yield Script(*name, cut=cut)
    yield Script("chat", "plain", ending="left", until=BEGUN)
    yield Script("chat", "plain", ending="left", until=STARTED)
    for api, shape in (("chat", "keep-alives first"), ("messages", "pings first"), ("ollama", "thinking")):
        events = len(Script(api, shape).stream.events)
        for until in range(1, events) if AT_LENGTH else sorted({1, 2, 4, events - 1} & set(range(events))):
            yield Script(api, shape, ending="left", until=until)
    for api, shape in (("chat", "plain"), ("messages", "pings first"), ("responses", "plain")):
        yield Script(api, shape, ending="raised", until=3)


@dataclass(frozen=True)
class Running:
    """A server that is asked, and where its application is."""

    config: Config
    port: int
    application_port: int
    process: subprocess.Popen[Any]

    def ask(self, scripts: Iterable[Script], server_ended_by: str = "") -> list[Asking]:
        """Ask for all scripts at once; clients don't leave where the server ends by a signal."""
        return [
            Asking(self.port, f"truth-{number}", script, self.application_port, server_ended_by)
            for number, script in enumerate(scripts)
        ]


@pytest.fixture(params=[*SERVERS, "proxy"])
def running(request: pytest.FixtureRequest, configure: Configure) -> Iterator[Running]:
    """Start a server, or the proxy in front of one that records nothing."""
    config = configure()
    if request.param != "proxy":
        with serving(config, *SERVERS[request.param]) as server:
            yield Running(config, server.port, server.port, server.process)
        return
    proxying: Start = request.getfixturevalue("proxying")
    with serving(config, *BEHIND_THE_PROXY) as server:
        proxy = proxying(server.port, drain_deadline_s=1.0)
        yield Running(proxy.config, proxy.port, server.port, proxy.process)


def records_of(config: Config, seen: list[Seen]) -> Mapping[str, Mapping[str, Any]]:
    """Wait for a record of each request."""
    names = {one.name for one in seen}

    def found() -> dict[str, dict[str, Any]] | None:
        records = {record.get("client_request_id", ""): record for record in read_records(config.directory, "request")}
        return records if names <= records.keys() else None

    records: dict[str, dict[str, Any]] = wait_until(found, "a record of each request")
    return records


def compare(seen: Seen, record: Mapping[str, Any], comparison: Comparison, in_process: bool) -> None:
    """Compare one record with what the client saw."""
    script = seen.script
    outcome = {"whole": "ok", "left": "client_disconnect", "raised": "error"}[script.ending]
    fields = tuple(field for field in FIELDS if field != "error.type" or script.ending != "raised")
    if not is_stream(seen.stream):
        fields = tuple(field for field in fields if field not in ("chunks", "stream.frames", "stream.keep_alives"))
    expected = truth(seen.stream, outcome)
    comparison.record(seen, expected, record, fields)
    if script.ending == "whole":
        size = record.get("http.response.body.size")
        comparison.holds(seen, "http.response.body.size", str(seen.bytes), size, size == seen.bytes)
        comparison.holds(seen, "the client's end", "whole", seen.whole, seen.whole)
    if is_stream(seen.stream):
        _compare_times(seen, record, comparison, later=0 if in_process else 1)
        if in_process:
            _compare_gaps(seen, record, comparison)


def _compare_times(seen: Seen, record: Mapping[str, Any], comparison: Comparison, later: int) -> None:
    """Compare times.

    The middleware looks at its clock before it hands a message on. The proxy may do so after it, but before the next.
    """
    kinds = [event.kind for event in seen.stream.events]
    first = next((kind for kind in kinds if kind in CHUNKS), None)
    times: dict[str, tuple[Kind, ...]] = {"gen_ai.response.time_to_first_chunk": CHUNKS}
    if "reasoning" in kinds and first != "reasoning":
        times["gen_ai.response.time_to_first_reasoning"] = ("reasoning",)
    if "tool" in kinds and first != "tool":
        times["gen_ai.response.time_to_first_tool_call"] = ("tool",)
    for name, wanted in times.items():
        before = next((at for at, kind in enumerate(kinds) if kind in wanted), None)
        if before is not None:
            least = (before + 1) * seen.script.pause_s - TOLERANCE_S
            _within(seen, name, least, seen.seconds_until(wanted, later), record, comparison)
    if kinds:
        most = seen.arrivals[later][0] if len(seen.arrivals) > later else None
        _within(seen, "time_to_first_byte_s", seen.script.pause_s - TOLERANCE_S, most, record, comparison)
    least = len(kinds) * seen.script.pause_s - TOLERANCE_S
    most = seen.total_s if seen.script.ending == "whole" and not later else None
    _within(seen, "duration_s", least, most, record, comparison)


def _within(
    seen: Seen, name: str, least: float, most: float | None, record: Mapping[str, Any], comparison: Comparison
) -> None:
    """Compare a time: not before the server could send, and not after the client had it."""
    recorded = record.get(name)
    holds = recorded is not None and least <= recorded and (most is None or recorded <= most)
    comparison.holds(seen, name, f"{least:.4f} to {most}", recorded, holds)


def _compare_gaps(seen: Seen, record: Mapping[str, Any], comparison: Comparison) -> None:
    """Compare the gaps of a server whose own clock has them: none is shorter than what lies between two events."""
    if seen.script.cut != "an event a message":
        return
    places = [at for at, event in enumerate(seen.stream.events) if event.kind in CHUNKS]
    least = [(second - one) * seen.script.pause_s - TOLERANCE_S for one, second in itertools.pairwise(places)]
    name = "chunk_gap_min_us"
    if least:
        recorded = record.get(name)
        holds = recorded is not None and recorded / 1e6 >= min(least)
        comparison.holds(seen, name, f"from {min(least) * 1e6:.0f}", recorded, holds)
    else:
        comparison.holds(seen, name, "absent", record.get(name), name not in record)


def test_records_say_what_clients_saw(running: Running, comparison: Comparison) -> None:
    seen = [asking.join() for asking in running.ask(scripts())]
    records = records_of(running.config, seen)
    for one in seen:
        compare(one, records[one.name], comparison, in_process=running.port == running.application_port)
    comparison.conclude()


def test_at_sigterm_a_stream_that_came_whole_is_ok_and_one_that_was_cut_is_not(
    running: Running, comparison: Comparison
) -> None:
    ending = [Script("chat", "keep-alives first"), Script("messages", "pings first")]
    hanging = [Script(api, shape, ending="left", until=until) for api, shape, until in OPEN]
    asked = running.ask([*ending, *hanging], "SIGTERM")
    for asking in asked:
        asking.wait_for(lambda seen: seen.bytes == len(seen.stream.body()) if seen.script.until else seen.events() > 0)
    running.process.terminate()
    running.process.wait(60)
    seen = [asking.join() for asking in asked]
    records = drained(running.config, seen)
    for one in seen:
        record, came_whole = records[one.name], one.whole and one.bytes == len(one.stream.body())
        if came_whole:
            comparison.record(one, truth(one.stream), record)
            continue
        outcome, chunks = record["outcome"], record.get("chunks", 0)
        comparison.holds(one, "outcome", "the server's end", outcome, outcome in ("server_shutdown", "process_died"))
        most = truth(one.stream).get("chunks", 0)
        comparison.holds(one, "chunks", f"{one.events()} to {most}", chunks, one.events() <= chunks <= most)
    comparison.conclude()


@pytest.mark.kills
def test_after_sigkill_a_record_says_how_far_each_stream_was(running: Running, comparison: Comparison) -> None:
    scripts = [Script(api, shape, ending="left", until=until) for api, shape, until in OPEN]
    asked = running.ask(scripts, "SIGKILL")
    for asking in asked:
        asking.wait_for(lambda seen: seen.bytes == len(seen.stream.body()))
    kill_all(running.process)
    seen = [asking.join() for asking in asked]
    records = drained(running.config, seen)
    for one in seen:
        expected = truth(one.stream, "process_died")
        comparison.record(one, expected, records[one.name], ("outcome", "chunks"))
    comparison.conclude()


def drained(config: Config, seen: list[Seen]) -> Mapping[str, Mapping[str, Any]]:
    """Return the record of each request, after a next start has written what the server left."""
    with Logger(config) as next_start:
        while next_start.backlog_records():
            assert next_start.flush()
        return records_of(config, seen)


def kill_all(process: subprocess.Popen[Any]) -> None:
    """Kill a server and its workers; the proxy has none, and no group of its own."""
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
