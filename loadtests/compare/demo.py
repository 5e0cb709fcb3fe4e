"""The main job in a minute: an inference server that records everything, what that costs it, and what is on disk then.

    make demo          or: python -m loadtests.compare.demo

First the cost: one server, kept busy by wrk, serves by turns without and with logging (`demo_turns`); its CPU time per
request and its requests per second stand with their intervals beside a control. Then the job: Locust plays an arrival
trace to the example app (an open loop: requests come when the trace says, streams overlap), and the demo shows some of
the records, the health answer, the books, and where everything lies.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtests.compare import arrivals, report
from loadtests.compare.compare import machine, wide_console
from loadtests.compare.demo_turns import CONNECTIONS, Cost, costs
from loadtests.compare.load import LoadError, locust
from loadtests.compare.measure import Books, Cores, ServerError, ServerUnderTest, records

FIRST_CHUNK: Final = "chat: time to first chunk"
GAP: Final = "chat: gap between chunks"
SHOWN_RECORDS: Final = 3
WARM_UP_REQUESTS: Final = 20
HOW_TO_READ: Final = (
    "A turn is some hundred requests; a ratio is taken between turns that follow each other.",
    "CPU time is that of the whole process, the listener's thread included.",
    "The control is the same server without logging once more: its distance from 1 is what cannot be seen here.",
    "The command make bench-turns measures longer, in several processes.",
)


class Job(NamedTuple):
    """What the arrival trace gave, and what the logged server left behind."""

    requests: int
    failures: int
    chunks: int
    p50_ms: float
    p99_ms: float
    first_chunk_p50_ms: float
    gap_p99_ms: float
    health: Any
    books: Books


def run(given: argparse.Namespace, console: Console) -> bool:
    """Run the demo; return whether every request was answered and has its record."""
    trace = arrivals.find(given.trace, given.out)
    console.rule("inference_logging: what recording every request and every chunk costs")
    found = _costs(given.cost_seconds, console)
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)
    console.rule("the main job: an arrival trace, every request and every chunk on record")
    console.print(f"{_relative(trace)}, {given.rate:g} requests/s on average, {given.pace:g} tokens/s each; {cores}")
    logs = given.out / "logs"
    with _waiting(console, "Locust plays the trace"):
        job = _job(given, trace, cores, logs)
    _show_job(console, job, logs)
    facts = {
        "command": "python -m loadtests.compare.demo",
        "machine": machine(),
        "connections of wrk": str(CONNECTIONS),
    }
    page = report.write_costs(given.out, found, facts, HOW_TO_READ)
    _show_places(console, logs, page)
    return job.books.balanced and not job.failures


def _costs(seconds: float, console: Console) -> list[Cost]:
    with _waiting(console, "starting") as begins:
        found = list(costs(seconds, lambda name: begins(f"wrk keeps the server busy, which logs by turns: {name}")))
    if not found:
        console.print("not measured: wrk is missing and could not be installed (on Debian: apt-get install wrk)")
        return found
    shown = Table(title="By turns within one server process under load, with intervals of 95 %", title_justify="left")
    shown.add_column(min_width=max(len(f"CPU per request, {cost.name}") for cost in found))
    for name in ("without", "with logging", "with ÷ without", "the control"):
        shown.add_column(name, justify="right", min_width=len(name))
    for cost in found:
        logged = f"+{cost.added_cpu_us.value:.2f} ± {cost.added_cpu_us.half:.2f} µs"
        both = f"[bold]{cost.cpu}[/bold]", str(cost.cpu_control)
        shown.add_row(f"CPU per request, {cost.name}", f"{cost.unlogged_cpu_us:.1f} µs", logged, *both)
    for cost in found:
        name, without = f"requests/s, {cost.name}", f"{cost.unlogged_rps:,.0f}"
        if cost.saturated:
            logged = f"{cost.unlogged_rps * cost.rps.value:,.0f}"
            shown.add_row(name, without, logged, f"[bold]{cost.rps}[/bold]", str(cost.rps_control))
        else:
            shown.add_row(name, "not measured", "", "", "")
    console.print(shown)
    idle = [
        f"requests/s, {cost.name}: only {cost.busy:.0%} of its core was used" for cost in found if not cost.saturated
    ]
    for line in (*idle, *HOW_TO_READ):
        console.print(line)
    return found


@contextmanager
def _waiting(console: Console, text: str) -> Iterator[Any]:
    """Show what is under way; gives the function that changes the text."""
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(text, total=None)
        yield lambda changed: progress.update(task, description=changed)


def _job(given: argparse.Namespace, trace: Path, cores: Cores, logs: Path) -> Job:
    """Play the trace to the example app with logging, and count."""
    options = [f"--trace={trace}", f"--trace-seconds={given.seconds:g}", f"--trace-rate={given.rate:g}"]
    with ServerUnderTest("ours", logs, cores.server) as server:
        server.request("/v1/chat/completions", {"max_tokens": 8, "stream": True}, WARM_UP_REQUESTS)
        asked = locust(server.url, [*options, f"--pace={given.pace:g}"])["requests"]
        health = json.loads(server.request("/health/logging"))
        books = server.stop()
    chat = asked.get("chat", {"count": 0})
    if not chat["count"]:
        raise LoadError(f"no request was answered: {asked}")
    first, gap = asked[FIRST_CHUNK], asked.get(GAP, {"count": 0, "p99_ms": 0.0})
    # The one health request reached the app's middleware, but is none of the app's.
    books = books._replace(accepted=books.accepted - 1)
    counts = chat["count"], chat["failures"], first["count"] + gap["count"]
    return Job(*counts, chat["p50_ms"], chat["p99_ms"], first["p50_ms"], gap["p99_ms"], health, books)


def _show_job(console: Console, job: Job, logs: Path) -> None:
    console.print(
        f"{job.requests:,} requests, {job.failures} failed, {job.chunks:,} chunks; as the clients saw it: request p50 "
        f"{job.p50_ms:.0f} ms, p99 {job.p99_ms:.0f} ms; first chunk p50 {job.first_chunk_p50_ms:.2f} ms; gap between "
        f"chunks p99 {job.gap_p99_ms:.2f} ms"
    )
    console.rule("a few records")
    for record in _last(logs):
        console.print_json(json.dumps(record))
    console.rule("GET /health/logging, right after the load")
    console.print_json(json.dumps(job.health))
    console.rule("the books")
    console.print(f"records = requests: {report.books_text(job.books)}; failed requests: {job.failures}")
    console.print(f"{WARM_UP_REQUESTS} of these requests are not the trace's: they warmed the server up before it.")


def _last(directory: Path) -> list[dict[str, Any]]:
    """Return an application record and the last request records, with long timelines cut for reading."""
    written = list(records(directory))
    logs = [record for record in written if record["event_name"] == "log"]
    requests = [record for record in written if record["event_name"] == "request"]
    return [_shortened(record) for record in [*logs[-1:], *requests[1 - SHOWN_RECORDS :]]]


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [*value[:8], f"… {len(value) - 8} more"] if isinstance(value, list) and len(value) > 10 else value
        for name, value in record.items()
    }


def _show_places(console: Console, logs: Path, page: Path) -> None:
    console.rule("where things lie")
    for segment in sorted(path for path in logs.glob("*.jsonl") if not path.is_symlink()):
        console.print(f"segment   {_relative(segment)}  ({segment.stat().st_size:,} bytes)")
    console.print(f"newest    {_relative(logs / 'latest')}")
    console.print(f"page      {_relative(page)}")


def _relative(path: Path) -> str:
    return os.path.relpath(path)


def main() -> None:
    """Read the arguments and run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="CSV of arrivals; default: the Azure chat hour, or a generated one")
    parser.add_argument("--cost-seconds", type=float, default=14.0, help="of load for each kind of request, by turns")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the trace that is played")
    parser.add_argument("--rate", type=float, default=20.0, help="arrivals per second, on average")
    parser.add_argument("--pace", type=float, default=200.0, help="tokens per second of each answer")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    try:
        balanced = run(parser.parse_args(), wide_console())
    except (LoadError, ServerError, FileNotFoundError, ValueError) as error:
        sys.exit(f"demo: {error}")
    sys.exit(0 if balanced else 1)


if __name__ == "__main__":
    main()
