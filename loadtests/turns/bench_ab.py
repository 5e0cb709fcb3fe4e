"""Whether `inference-logging ab` finds a known cost: 0 % and 5 % of a request's CPU time, on a real uvicorn under load.

The application burns CPU time, and in a recorded request so much more as is asked for. What the middleware itself costs
comes on top in both runs: the run with 0 % finds it, and what it measures of itself (its metrics of the hot path and of
the listener) stands beside it. One worker; `wrk` with a few connections that are kept open.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_logging.read.stats.interval import Interval
from loadtests import harness
from loadtests.harness import HOST
from loadtests.turns.bench_turns_report import place

BURN_US: Final = 2000.0
COSTS: Final = (0.0, 0.05)
CONNECTIONS: Final = 4
LIMIT_S: Final = 40.0
MARGIN_S: Final = 5.0
"""Time that the load goes on beyond the comparison."""
PATIENCE_S: Final = 60.0
METRICS: Final = "/metrics"
JUDGED: Final = ("CPU per request", "time to first chunk", "requests/s")


class Run(NamedTuple):
    """What `ab` found with one cost injected."""

    extra_us: float
    found: dict[str, dict[str, Any]]
    """The measures by name, as the command prints them."""
    own_us: float
    """CPU time for one record by the middleware's own metrics."""

    def off(self, name: str) -> float:
        """Return a measure without recording."""
        return float(self.found[name]["off"])

    def difference(self, name: str) -> Interval:
        """Return the difference that recording made, as a share."""
        return Interval(**self.found[name]["difference"])

    def injected(self, name: str) -> float:
        """Return what the injected cost makes of a measure, as a share."""
        if name == "requests/s":  # of one saturated worker
            return 1 / (1 + self.extra_us / 1e6 * self.off(name)) - 1
        return self.extra_us / 1e6 / self.off(name)


def judged(name: str, run: Run, nothing: Run) -> tuple[Interval, float]:
    """Return what is found of the injected cost, without what the run with 0 % finds, and what it should be."""
    with_it, without = run.difference(name), nothing.difference(name)
    value = with_it.value - without.value
    half = (with_it.half**2 + without.half**2) ** 0.5
    return Interval(value, value - half, value + half), run.injected(name)


def measure(wrk: str, cost: float, limit_s: float) -> Run:
    """Serve, load, and compare."""
    extra_us, port = cost * BURN_US, harness.free_port()
    url = f"http://{HOST}:{port}"
    with harness.scratch_directory() as directory, (directory / "console").open("wb") as console:
        places = {"directory": directory / "logs", "queue_directory": directory / "queues"}
        environment = harness.environment(**places, metrics_path=METRICS)
        environment |= {"BENCH_AB_BURN_US": str(BURN_US), "BENCH_AB_EXTRA_US": str(extra_us)}
        serve = [sys.executable, "-m", "uvicorn", "loadtests.turns.bench_ab_app:app", "--port", str(port)]
        with harness.process([*serve, "--no-access-log", "--log-level", "warning"], environment, console) as server:
            harness.wait_until_up(server, f"{url}{METRICS}", PATIENCE_S, directory / "console")
            load = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{limit_s + MARGIN_S:.0f}s", f"{url}/"]
            with subprocess.Popen(load, stdout=subprocess.DEVNULL) as loading:
                found = compare(environment, limit_s)
                loading.wait()
            own_us = own_cost_us(harness.get(f"{url}{METRICS}").decode())
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
    return Run(extra_us, found, own_us)


def compare(environment: dict[str, str], limit_s: float) -> dict[str, dict[str, Any]]:
    """Run the command, and return its measures by name."""
    command = [sys.executable, "-m", "inference_logging.cli.main", "ab", "--for", f"{limit_s:g}s", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ab ended with {done.returncode}: {done.stdout}{done.stderr}")
    return {measure["name"]: measure for measure in json.loads(done.stdout)["measures"]}


def own_cost_us(metrics: str) -> float:
    """Return the CPU time for one record that the middleware and its listener measure of themselves."""
    path_s, listener_s, records = (
        float(re.findall(rf"^inference_logging_{name}_total (\S+)$", metrics, re.MULTILINE)[0])
        for name in ("hot_path_seconds", "listener_cpu_seconds", "records_accepted")
    )
    return (path_s + listener_s) / records * 1e6


def main() -> None:
    """Measure with each cost, and print whether it is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=f"of a comparison; {LIMIT_S:g} unless given")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    wrk = harness.find_wrk()
    if wrk is None:
        sys.exit(harness.NO_WRK)
    seen_on = place()
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()), flush=True)
    runs = {cost: measure(wrk, cost, options.seconds) for cost in COSTS}
    nothing = runs[0.0]
    print(f"{BURN_US:g} µs of CPU time a request, {options.seconds:g} s for each cost")
    own = nothing.own_us / 1e6 / nothing.off(JUDGED[0])
    print(f"the middleware itself, by its own metrics: {nothing.own_us:.1f} µs for a record, {own:+.2%} of the CPU")
    verdict = "within" if nothing.difference(JUDGED[0]).holds(own) else "NOT within"
    print(f"{JUDGED[0]}, 0% injected: {own:+.2%} of the middleware itself is {verdict} what is found")
    for name in JUDGED:
        print(f"{name}, 0% injected: found {percent(nothing.difference(name))}, the middleware itself")
        for cost in COSTS[1:]:
            found, injected = judged(name, runs[cost], nothing)
            verdict = "within" if found.holds(injected) else "NOT within"
            print(f"{name}, {cost:.0%} injected: {injected:+.2%} is {verdict} {percent(found)}")
    about = {"command": "make bench-ab", "machine": seen_on, "burn_us": BURN_US, "seconds": options.seconds}
    harness.write(options.json, {**about, "rows": rows(runs), "runs": [run._asdict() for run in runs.values()]})


def rows(runs: dict[float, Run]) -> list[dict[str, str]]:
    """Return what the README says of it."""
    name, nothing = JUDGED[0], runs[0.0]
    found = [(cost, *judged(name, runs[cost], nothing)) for cost in COSTS[1:]]
    return [
        {
            "what": f"`inference-logging ab`, {name}: {cost:.0%} more in recorded requests",
            "ours": f"found {percent(interval)}, injected {injected:+.2%}",
            "beside": f"nothing injected: {percent(nothing.difference(name))}",
        }
        for cost, interval, injected in found
    ]


def percent(found: Interval) -> str:
    """Return an interval of shares in percent."""
    return f"{found.value:+.2%} ({found.low:+.2%} … {found.high:+.2%})"


if __name__ == "__main__":
    main()
