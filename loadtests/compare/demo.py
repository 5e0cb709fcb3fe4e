"""The main job in a minute: an inference server that records everything, what that costs it, and what is on disk then.

    make demo          or: python -m loadtests.compare.demo

First the cost: one server (FastAPI on uvicorn, on a core of its own), kept busy by wrk, serves without logging, with
it, and without once more, by turns of some hundred requests. Then the job: Locust plays an arrival trace to the example
app (an open loop: requests come when the trace says, streams overlap), and the demo shows some of the records, the
health answer, the books, and where everything lies.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import bootstrap, ratio, trimmed_mean
from inference_logging.segments import read_records
from loadtests import harness
from loadtests.compare import arrivals
from loadtests.compare.measure import Cores, LoadError, ServerError, locust, serving
from loadtests.turns.bench_turns import Load, running
from loadtests.turns.bench_turns_arms import CONTROL, LOGGED, UNLOGGED, WITH_AND_WITHOUT
from loadtests.turns.bench_turns_rows import LEAST_BLOCKS, Block, Case

CONNECTIONS: Final = 16
CASES: Final = {
    "/v1/chat/completions": Case("JSON POST", 512),
    "/stream64": Case("stream of 64", 48),
}
"""The routes, and how many requests are one turn: some 50 ms, in which the listener has written most of its records."""
SHOWN_RECORDS: Final = 3
WARM_UP_REQUESTS: Final = 20
HOW_TO_READ: Final = """
A turn is some hundred requests; a ratio is taken between turns that follow each other. Intervals are of 95 %.
CPU time is that of the whole process, the listener's thread included.
The control is the same server without logging once more: its distance from 1 is what cannot be seen here.
The command make bench-turns measures longer, in several processes."""


def run(given: argparse.Namespace) -> bool:
    """Run the demo; return whether every request was answered and has its record."""
    trace = arrivals.find(given.trace, given.out)
    _begin("inference_logging: what recording every request and every chunk costs")
    _show_costs(given.cost_seconds)
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)
    _begin("the main job: an arrival trace, every request and every chunk on record")
    print(f"{os.path.relpath(trace)}, {given.rate:g} requests/s on average, {given.pace:g} tokens/s each; {cores}")
    return _play(given, trace, cores.server, given.out / "logs")


def _begin(title: str) -> None:
    print(f"\n── {title} ──", flush=True)


def _show_costs(seconds: float) -> None:
    wrk = harness.find_wrk()
    if wrk is None:
        print(harness.NO_WRK)
        return
    rows = []
    for route, case in CASES.items():
        print(f"wrk keeps the server busy, which logs by turns: {case.name}", flush=True)
        with running(WITH_AND_WITHOUT, "process") as server:
            blocks = server.measure(Load(wrk, CONNECTIONS, seconds, 1, LEAST_BLOCKS), route, case)
            server.stop()  # raises unless each request with logging has its record
        rows.append(cost(case, blocks))
    heads = ("CPU time per request", "without", "added by logging", "with ÷ without", "the control")
    print(Table("", heads, rows, HOW_TO_READ).text())


def cost(case: Case, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return the row of a kind of request: what logging adds to it, of the nanoseconds that the turns took."""
    unlogged, logged, control = ([block[arm] for block in blocks] for arm in (UNLOGGED, LOGGED, CONTROL))
    scale = 1000 * case.requests
    added = bootstrap([(one - other) / scale for one, other in zip(logged, unlogged, strict=True)], trimmed_mean)
    times = f"{trimmed_mean(unlogged) / scale:.1f} µs", f"{added.value:.2f} ± {added.half:.2f} µs"
    return case.name, *times, str(ratio(logged, unlogged)), str(ratio(control, unlogged))


def _play(given: argparse.Namespace, trace: Path, core: int, logs: Path) -> bool:
    """Play the trace to the example app with logging, and show what it has left."""
    options = [f"--trace={trace}", f"--trace-seconds={given.seconds:g}", f"--trace-rate={given.rate:g}"]
    with serving("ours", logs, core) as server:
        server.request("/v1/chat/completions", {"max_tokens": 8, "stream": True}, WARM_UP_REQUESTS)
        asked = locust(server.url, [*options, f"--pace={given.pace:g}"])["requests"]
        health = json.loads(server.request("/health/logging"))
        books = server.stop()
    chat = asked.get("chat", {"count": 0})
    if not chat["count"]:
        raise LoadError(f"no request was answered: {asked}")
    first, gap = asked["chat: time to first chunk"], asked.get("chat: gap between chunks", {"count": 0, "p99_ms": 0.0})
    # The one health request reached the app's middleware, but is none of the app's.
    books = books._replace(accepted=books.accepted - 1)
    print(
        f"{chat['count']:,} requests, {chat['failures']} failed, {first['count'] + gap['count']:,} chunks; as the "
        f"clients saw it: request p50 {chat['p50_ms']:.0f} ms, p99 {chat['p99_ms']:.0f} ms; first chunk p50 "
        f"{first['p50_ms']:.2f} ms; gap between chunks p99 {gap['p99_ms']:.2f} ms"
    )
    _begin("a few records")
    for record in _last(logs):
        print(json.dumps(_shortened(record), indent=2, ensure_ascii=False))
    _begin("GET /health/logging, right after the load")
    print(json.dumps(health, indent=2))
    _begin("the books")
    print(f"records = requests: {books}; failed requests: {chat['failures']}")
    print(f"{WARM_UP_REQUESTS} of these requests are not the trace's: they warmed the server up before it.")
    _begin("where things lie")
    for segment in sorted(harness.segments(logs)):
        print(f"segment   {os.path.relpath(segment)}  ({segment.stat().st_size:,} bytes)")
    print(f"newest    {os.path.relpath(logs / 'latest')}")
    print(f"a page    .venv/bin/inference-logging stats {os.path.relpath(logs)} --html report.html")
    is_whole = books.balanced and not chat["failures"]
    _begin("in short")
    print(
        "Each request was answered and is on record." if is_whole else "NOT each request was answered and is on record."
    )
    return is_whole


def _last(directory: Path) -> Iterator[dict[str, Any]]:
    """Iterate over an application record and the last request records."""
    written = list(read_records(directory))
    yield from [record for record in written if record["event_name"] == "log"][-1:]
    yield from [record for record in written if record["event_name"] == "request"][1 - SHOWN_RECORDS :]


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose long timelines are cut for reading."""
    return {
        name: [*value[:8], f"… {len(value) - 8} more"] if isinstance(value, list) and len(value) > 10 else value
        for name, value in record.items()
    }


def main() -> None:
    """Read the arguments and run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="CSV of arrivals; generated unless given")
    parser.add_argument("--cost-seconds", type=float, default=14.0, help="of load for each kind of request, by turns")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the trace that is played")
    parser.add_argument("--rate", type=float, default=20.0, help="arrivals per second, on average")
    parser.add_argument("--pace", type=float, default=200.0, help="tokens per second of each answer")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    try:
        balanced = run(parser.parse_args())
    except (LoadError, ServerError, FileNotFoundError, ValueError) as error:
        sys.exit(f"demo: {error}")
    sys.exit(0 if balanced else 1)


if __name__ == "__main__":
    main()
