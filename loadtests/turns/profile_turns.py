"""Where the time goes that an arm adds to a request, by library and function: ``make profile-turns``.

    python -m loadtests.turns.profile_turns [--seconds S]

perf (Linux) samples the thread of the event loop while the arms of `bench_turns` take turns; a sample belongs to the
arm in whose slice it was taken. The time of the arms without anything is taken off. A sample says where the time was
spent, not how much CPU time there was: `bench_turns` says that.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inference_logging.read.pages.content import Table
from loadtests import harness
from loadtests.turns.bench_turns import ASK, ROUTES, Load, Server, running
from loadtests.turns.bench_turns_arms import NOTHING, NOTHING_AGAIN, OURS, THINNEST, THINNEST_AGAIN

ARMS: Final = (NOTHING, THINNEST, OURS, THINNEST_AGAIN, NOTHING_AGAIN)
SAMPLES_PER_S: Final = 7000
SHOWN: Final = 15
SECONDS: Final = 40

Place = tuple[str, str]
"""A library, and a function of it."""
Added = tuple[str, float, float, float]
"""A name; the microseconds that the thinnest wrapper, ours, and nothing once more (the control) add to a request."""


def profile(server: Server, load: Load, url: str, script: Path | None, requests: int) -> list[Counter[Place]]:
    """Return the microseconds of a request of each arm, place by place."""
    data = server.directory / "perf.data"
    record = ["perf", "record", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-o", str(data)]
    record += ["-t", str(server.process.pid), "--", "sleep", str(load.limit_s)]
    server.ask(f"restart?{requests}")
    with subprocess.Popen(record, stderr=subprocess.PIPE, text=True) as sampling:
        load.on(url, load.limit_s, script)
        _, said = sampling.communicate()
    if sampling.returncode:
        raise RuntimeError(f"perf record failed: {said.strip()}")
    return per_request(server.ask("pause")["begun"], list(_samples(data)), requests)


def per_request(begun: list[tuple[int, int]], samples: list[tuple[int, Place]], requests: int) -> list[Counter[Place]]:
    """Return the microseconds of a request of each arm, place by place, from slices and samples."""
    slices, taken = Counter(arm for _, arm in begun), [Counter[Place]() for _ in ARMS]
    times = [time for time, _ in begun]
    for time, place in samples:
        at = bisect(times, time) - 1
        if at >= 0 and begun[at][1] >= 0:
            arm = begun[at][1]
            taken[arm][place] += 1e6 / SAMPLES_PER_S / requests / slices[arm]  # type: ignore[assignment]
    return taken


def added(taken: list[Counter[Place]], part: int) -> list[Added]:
    """Return what is added, most first; ``part`` of a place: 0 its library, 1 its function."""
    sums = [Counter[str]() for _ in taken]
    for place in {place for one in taken for place in one}:
        for arm, one in zip(sums, taken, strict=True):
            arm[place[part]] += one[place]
    nothing, thinnest, ours, thinnest_again, nothing_again = sums

    def adds(name: str) -> Added:
        without = (nothing[name] + nothing_again[name]) / 2
        thin, control = (thinnest[name] + thinnest_again[name]) / 2, nothing_again[name] - nothing[name]
        return name, thin - without, ours[name] - without, control

    return sorted(map(adds, set().union(*sums)), key=lambda one: -one[2])


def _samples(data: Path) -> Iterator[tuple[int, Place]]:
    command = ["perf", "script", "-i", str(data), "-F", "time,ip,sym,dso", "--ns"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        time, _, *function, library = line.split()
        yield int(time.rstrip(":").replace(".", "")), (Path(library.strip("()")).name, " ".join(function))


def main() -> None:
    """Profile each route, and print what is added by library and by function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a route; {SECONDS} unless given")
    options, wrk = parser.parse_args(), harness.find_wrk()
    if wrk is None or shutil.which("perf") is None:
        sys.exit(harness.NO_WRK if wrk is None else "perf is missing (on Debian: apt install linux-perf)")
    load = Load(wrk, 1, options.seconds, 1)
    for route, case in ((route, case) for route, case in ROUTES.items() if case.most_times):
        with running(ARMS) as server:
            url = f"http://{harness.HOST}:{server.port}{route}"
            script = harness.post_script(server.directory, ASK) if route.startswith("/v1/") else None
            load.on(url, 1, script)  # warms caches and the connection handling
            taken = profile(server, load, url, script, case.requests)
            server.stop()
        for part, head in enumerate(("library", "function")):
            rows = [(name, *(f"{us:+.1f}" for us in figures)) for name, *figures in added(taken, part)[:SHOWN]]
            heads = (head, "the thinnest wrapper, µs", "ours, µs", "the control, µs")
            print(f"\n{Table(case.name, heads, rows).text()}", flush=True)


if __name__ == "__main__":
    main()
