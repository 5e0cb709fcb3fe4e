"""What a call from C++ costs: ours, spdlog, quill and write(2), in one process by turns: ``make bench-native``.

    python loadtests/bench_native.py [latency] [entries] [kills] [--prefix DIR] [--quill DIR] [--quick] [--json PATH]

``latency``: calls with eight fields, each between two readings of the clock; ``nothing`` is these readings alone.
In each round every way of logging has its turn, in random order, with one thread and with four. spdlog's asynchronous
logger has its default policy (a full queue blocks) and a queue that has room for a round; ``spdlog_ours`` is spdlog
with our sink. quill has its defaults, and room for a round; its own thread runs in its own turns only. No package has
quill: ``QUILL`` or ``--quill`` names a checkout, and without one it is left out.
``entries``: synchronous ``write`` of entries of 128 bytes beside ours, until the last call returns, and until all is
written.
``kills``: programs that log are killed at a random instant; *lost* is what had been accepted and is in no file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench_loggers import fitting_queue_bytes, memory_directory, scratch_directory
from bench_report import Report, at_least, at_most, machine, pairwise
from inference_logging.segments import read_records

HERE: Final = Path(__file__).parent
DIST: Final = HERE.parent / "dist" / "c"
SECTIONS: Final = ("latency", "entries", "kills")
LOGGERS: Final = ("ours", "spdlog_ours", "spdlog_async", "spdlog_sync", "quill", "write")
KILLED: Final = ("ours", "spdlog_async", "spdlog_sync", "quill", "write")
THREADS: Final = (1, 4)
GOALS_NS: Final = {"p50": 60, "p99": 200, "p999": 1000}
TIMEOUT_S: Final = 300
QUEUE_BYTES: Final = 256 << 20
"""Room for a million entries."""


@dataclass(frozen=True)
class Program:
    """The compiled program, and where it may write."""

    path: Path
    directory: Path
    configuration: Path
    has_quill: bool

    def loggers(self, names: tuple[str, ...]) -> list[str]:
        """Return those of the names that are there."""
        return [name for name in names if name != "quill" or self.has_quill]

    def run(self, command: str, *arguments: str) -> list[dict[str, Any]]:
        """Run one command; return its lines."""
        line = [*map(str, (self.path, command, self.configuration, self.directory)), *arguments]
        ended = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if ended.returncode:
            raise RuntimeError(f"{command} failed: {ended.stderr}")
        return [json.loads(said) for said in ended.stdout.splitlines()]

    def killed(self, logger: str, after_s: float) -> int:
        """Kill the program while it logs; return how many calls had returned."""
        line = [*map(str, (self.path, "forever", self.configuration, self.directory)), logger]
        returned = self.directory / "returned"
        returned.unlink(missing_ok=True)
        with subprocess.Popen(line) as running:
            while not (returned.exists() and any(returned.read_bytes())):
                if running.poll() is not None:
                    raise RuntimeError(f"{logger} ended by itself")
                time.sleep(0.001)
            time.sleep(after_s)
            running.send_signal(signal.SIGKILL)
        return int.from_bytes(returned.read_bytes(), sys.byteorder)


@contextmanager
def compiled(prefix: Path, quill: Path | None) -> Iterator[Program]:
    """Compile the program against the installed library, with quill if there is one."""
    with scratch_directory() as directory, scratch_directory(memory_directory()) as queues:
        path = directory / "calls"
        source = str(HERE / "native" / "calls.cpp")
        flags = ["-std=c++17", "-O2", "-DSPDLOG_FMT_EXTERNAL", f"-I{prefix}/include", source]
        if quill is not None:
            flags += ["-DWITH_QUILL", "-isystem", str(quill)]
        linked = [f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-linferlog", "-lspdlog", "-lfmt", "-pthread"]
        subprocess.run(["g++", *flags, "-o", str(path), *linked], check=True)
        configuration = directory / "configuration.json"
        places = {"directory": str(directory / "segments"), "queue_directory": str(queues)}
        given = {"version": 1, "queue_bytes": fitting_queue_bytes(QUEUE_BYTES), **places}
        configuration.write_text(json.dumps(given), encoding="utf-8")
        yield Program(path, directory, configuration, quill is not None)


def latency(program: Program, quick: bool) -> Iterator[Report]:
    """Report the percentiles of each way of logging."""
    rounds, calls = (2, 2_000) if quick else (30, 20_000)
    found: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in program.run("latency", str(rounds), str(calls)):
        found[line["logger"], line["threads"]].append(line)
    for threads in THREADS:
        report = Report(f"a call with eight fields, threads: {threads}")
        clock = [line["p50"] for line in found["nothing", threads]]
        report.add("two readings of the clock, p50", "ns", clock)
        for logger in program.loggers(LOGGERS):
            for share in (*GOALS_NS, "max"):
                values = [line[share] for line in found[logger, threads]]
                if share == "p50":
                    values = pairwise(lambda all_, clock: max(all_ - clock, 0), values, clock)
                goal = at_most(GOALS_NS[share]) if logger == "ours" and share in GOALS_NS else None
                report.add(f"{logger}, {share}{' without the clock' if share == 'p50' else ''}", "ns", values, goal)
        for logger in program.loggers(LOGGERS):
            report.add(f"{logger}, until written", "rec/s", [line["records_per_s"] for line in found[logger, threads]])
        ours, theirs = (found[f"spdlog_{name}", threads] for name in ("ours", "async"))
        shares = {share: [[line[share] for line in lines] for lines in (theirs, ours)] for share in ("p50", "p999")}
        ratios = {share: pairwise(lambda their, our: their / our, *pair) for share, pair in shares.items()}
        report.add("spdlog's async ÷ spdlog with our sink, p50", "×", ratios["p50"], at_least(1))
        report.add("spdlog's async ÷ spdlog with our sink, p99.9", "×", ratios["p999"], at_least(10))
        refused = sum(line["refused"] for line in found["ours", threads])
        report.remarks.append(f"ours refused {refused} of {len(found['ours', threads]) * calls} calls")
        yield report


def entries(program: Program, quick: bool) -> Iterator[Report]:
    """Report how much faster many entries are than by synchronous ``write``."""
    rounds = 1 if quick else 5
    for count in (1_000,) if quick else (100_000, 1_000_000):
        found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for _ in range(rounds):
            for logger in random.sample(("ours", "write"), 2):
                found[logger] += program.run("entries", logger, str(count))
        report = Report(f"{count:,} entries of 128 bytes")
        for logger in ("write", "ours"):
            report.add(f"{logger}, until the last call returns", "ms", [1e3 * one["called_s"] for one in found[logger]])
            report.add(f"{logger}, until written", "ms", [1e3 * one["written_s"] for one in found[logger]])
        called = ([one["called_s"] for one in found[logger]] for logger in ("write", "ours"))
        report.add("write ÷ ours, calls", "×", pairwise(lambda write, ours: write / ours, *called), at_least(10))
        yield report


def kills(program: Program, quick: bool) -> Iterator[Report]:
    """Report what kills have lost."""
    report = Report("accepted before a kill, and in no file after it")
    for logger in program.loggers(KILLED):
        lost = [_lost(program, logger) for _ in range(2 if quick else 20)]
        report.add(f"{logger}, lost of a kill", "records", lost, at_most(0) if logger == "ours" else None)
        report.remarks.append(f"{logger}: {sum(lost)} lost in {len(lost)} kills")
    yield report


def _lost(program: Program, logger: str) -> int:
    accepted = program.killed(logger, random.uniform(0.01, 0.2))
    if logger == "ours":
        return max(accepted - _recovered(program), 0)
    return max(accepted - (program.directory / f"{logger}.log").read_bytes().count(b"\n"), 0)


def _recovered(program: Program) -> int:
    """Let a listener write what the killed program has left; return how many entries there are, and remove them."""
    command = str(Path(sys.executable).with_name("inference-logging"))
    options = ["recover", "--config", str(program.configuration)]
    subprocess.run([command, *options], capture_output=True, timeout=TIMEOUT_S, check=True)
    segments = program.directory / "segments"
    arrived = sum(bool(record["event_name"] == "bench.entry") for record in read_records(segments))
    shutil.rmtree(segments)
    return arrived


def quill_headers(given: str | None) -> Path | None:
    """Return the directory with quill's headers, or say that there is none."""
    installed = (Path("/usr/include"), Path("/usr/local/include"))
    places = installed if not given else (Path(given) / "include", Path(given))
    for place in places:
        if (place / "quill" / "Logger.h").exists():
            return place
    where = ", ".join(map(str, places))
    print(f"quill not found in {where}; QUILL=DIRECTORY names a checkout of it", flush=True)
    return None


def main() -> None:
    """Measure, print, and write the JSON if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[], metavar="SECTION")
    parser.add_argument("--prefix", type=Path, default=DIST, help="where the C library is installed")
    parser.add_argument("--quill", default=os.environ.get("QUILL"), metavar="DIR", help="a checkout of quill")
    parser.add_argument("--quick", action="store_true", help="short: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    print("  ".join(f"{name}: {value}" for name, value in machine().items()), flush=True)
    print("median (lowest … highest round)", flush=True)
    reports = []
    with compiled(options.prefix, quill_headers(options.quill)) as program:
        for section, measure in zip(SECTIONS, (latency, entries, kills), strict=True):
            if section in (options.sections or SECTIONS):
                for report in measure(program, options.quick):
                    report.print()
                    reports.append(report)
    if options.json is not None:
        options.json.write_text(json.dumps([report.as_json() for report in reports], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
