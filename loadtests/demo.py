"""The main job in a minute: an inference server under load, with and without logging, and what is on disk then.

    make demo          or: python loadtests/demo.py

Two servers run the example app, one with logging. Locust plays an arrival trace to each of them in turn (an open loop:
requests come when the trace says, streams overlap), about 20 s in all. Then it shows what logging cost, some of the
records, the health answer, and where everything lies.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import arrivals
import report
from compare import machine, wide_console
from load import Load, LoadError, locust
from measure import Books, Cores, ServerError, ServerUnderTest, records
from summary import BASE, Rounds, Row, rows

LOGGED = "ours"
MODES = (BASE, LOGGED)
SCENARIO = "trace"
FIRST_CHUNK = "chat: time to first chunk"
GAP = "chat: gap between chunks"
SHOWN_RECORDS = 3
WARM_UP_REQUESTS = 20


@dataclass(frozen=True)
class Play:
    """One play of the trace to one server."""

    load: Load
    chunks: int
    first_chunk_p50_ms: float
    gap_p99_ms: float


class Demo:
    """The two servers, and the plays so far."""

    def __init__(self, given: argparse.Namespace, trace: Path, cores: Cores, stack: ExitStack) -> None:
        """Start both servers."""
        self._options = [
            f"--trace={trace}",
            f"--trace-seconds={given.seconds / (given.halves * len(MODES)):g}",
            f"--trace-rate={given.rate:g}",
            f"--pace={given.pace:g}",
        ]
        self.directories = {mode: given.out / ("logs" if mode == LOGGED else "without") for mode in MODES}
        self.servers = {
            mode: stack.enter_context(ServerUnderTest(mode, self.directories[mode], cores.server)) for mode in MODES
        }
        self.plays: dict[str, list[Play]] = {mode: [] for mode in MODES}
        for server in self.servers.values():
            server.request("/v1/chat/completions", {"max_tokens": 8, "stream": True}, WARM_UP_REQUESTS)

    def play(self, mode: str) -> None:
        """Play the trace once to one of the servers."""
        server = self.servers[mode]
        before = server.cpu_s()
        result = locust(server.url, self._options)
        self.plays[mode].append(_play(result, server.cpu_s() - before))

    def health(self) -> Any:
        """Return the answer of the logging's own health route."""
        return json.loads(self.servers[LOGGED].request("/health/logging"))

    def stop(self) -> dict[str, Books]:
        """Stop both servers. The one health request reached the app's middleware, but is none of the app's."""
        books = {mode: server.stop() for mode, server in self.servers.items()}
        logged = books[LOGGED]
        return {**books, LOGGED: Books(logged.accepted - 1, logged.records, logged.dropped)}


def _play(result: dict[str, Any], cpu_s: float) -> Play:
    asked = result["requests"]
    chat = asked.get("chat", {"count": 0, "failures": 0})
    if not chat["count"]:
        raise LoadError(f"no request was answered: {asked}")
    load = Load(chat["count"], chat["failures"], result["seconds"], chat["p50_ms"], chat["p99_ms"], cpu_s)
    chunks = asked[FIRST_CHUNK]["count"] + asked.get(GAP, {}).get("count", 0)
    return Play(load, chunks, asked[FIRST_CHUNK]["p50_ms"], asked.get(GAP, {}).get("p99_ms", 0.0))


def run(given: argparse.Namespace, console: Console) -> bool:
    """Run the demo; return whether every request was answered and has its record."""
    trace = arrivals.find(given.trace, given.out)
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)
    console.rule("inference_logging: an inference server under load, with and without logging")
    console.print(
        f"arrival trace: {_relative(trace)}, {given.rate:g} requests/s on average, {given.pace:g} tokens/s each"
    )
    console.print(str(cores))
    with ExitStack() as stack:
        demo = Demo(given, trace, cores, stack)
        _play_all(demo, given.halves, console)
        health = demo.health()
        books = demo.stop()
    measured = rows(_rounds(demo), {(SCENARIO, mode): books[mode] for mode in MODES})
    facts = {"command": "python loadtests/demo.py", "cores": str(cores), "machine": machine(), "trace": trace.name}
    page = report.write(
        given.out, "Demo: an arrival trace, with and without logging", measured, facts, [_how_to_read()]
    )
    _show(console, demo, measured, health)
    _show_places(console, demo.directories[LOGGED], page)
    return books[LOGGED].balanced and not any(row.failures for row in measured)


def _play_all(demo: Demo, halves: int, console: Console) -> None:
    names = {BASE: "without logging", LOGGED: "with logging"}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("starting", total=halves * len(MODES))
        for half in range(halves):
            for mode in MODES if half % 2 == 0 else reversed(MODES):
                progress.update(task, description=f"Locust plays the trace to the server {names[mode]}")
                demo.play(mode)
                progress.advance(task)


def _rounds(demo: Demo) -> Rounds:
    return {SCENARIO: {mode: [play.load for play in plays] for mode, plays in demo.plays.items()}}


def _show(console: Console, demo: Demo, measured: list[Row], health: Any) -> None:
    without, logged = measured
    shown = Table(title="What logging every request and every chunk costs", title_justify="left")
    for head in ("", "without", "with logging", "ratio"):
        shown.add_column(head, justify="left" if not head else "right")
    for name, form, before, after in _lines(demo, without, logged):
        shown.add_row(name, format(before, form), format(after, form), f"{after / before:.3f}" if before else "")
    console.print(shown)
    console.print(f"req/s with logging ÷ without: [bold]{logged.rps_ratio.show()}[/bold]   {_how_to_read()}")
    console.rule("a few records")
    for record in _last(demo.directories[LOGGED]):
        console.print_json(json.dumps(record))
    console.rule("GET /health/logging, right after the load")
    console.print_json(json.dumps(health))
    console.rule("the books")
    console.print(f"records = requests: {report.books_text(logged.books)}; failed requests: {logged.failures}")


def _lines(demo: Demo, without: Row, logged: Row) -> list[tuple[str, str, float, float]]:
    def mean(mode: str, value: str) -> float:
        return sum(float(getattr(play, value)) for play in demo.plays[mode]) / len(demo.plays[mode])

    def both(value: str) -> tuple[float, float]:
        return mean(BASE, value), mean(LOGGED, value)

    return [
        ("requests per second", ".2f", without.rps.median, logged.rps.median),
        ("chunks streamed", ",.0f", *both("chunks")),
        ("server CPU per request, ms", ".2f", without.cpu_us.median / 1000, logged.cpu_us.median / 1000),
        ("request p50, ms", ".1f", without.p50_ms, logged.p50_ms),
        ("request p99, ms", ".1f", without.p99_ms, logged.p99_ms),
        ("time to first chunk p50, ms", ".2f", *both("first_chunk_p50_ms")),
        ("gap between chunks p99, ms", ".2f", *both("gap_p99_ms")),
    ]


def _how_to_read() -> str:
    return (
        "In an open loop requests per second follow the trace as long as the server keeps up; the cost shows in CPU "
        "and latency. `python loadtests/compare.py --tool wrk` saturates the server."
    )


def _last(directory: Path) -> list[dict[str, Any]]:
    """Return an application record and the last request records, with long timelines cut for reading."""
    written = list(records(directory))
    logs = [record for record in written if record["event_name"] not in ("request", "segment.header", "segment.footer")]
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
    console.print(f"report    {_relative(page)}")


def _relative(path: Path) -> str:
    return os.path.relpath(path)


def main() -> None:
    """Read the arguments and run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="CSV of arrivals; default: the Azure chat hour, or a generated one")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of all plays together")
    parser.add_argument("--halves", type=int, default=2, help="plays per server, in turns")
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
