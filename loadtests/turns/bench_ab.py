"""Whether `inference-logging ab` finds a known cost: 0 % and 5 % of a request's CPU time, on a real uvicorn under load.

The application burns CPU time, and in a recorded request so much more as is asked for. What the middleware itself costs
comes on top in both runs: the run with 0 % finds it. One worker; `wrk` with a few connections that are kept open.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, Final, NamedTuple

from inference_logging import InferenceLoggingMiddleware, current_request
from inference_logging.read.stats.interval import Interval
from inference_logging.record.asgi.lifespan import ASGIApp, Receive, Scope, Send
from loadtests import harness
from loadtests.harness import HOST

BURN_US: Final = 2000.0
EXTRA: Final = 0.05
"""The share that a recorded request burns besides."""
CONNECTIONS: Final = 4
LIMIT_S: Final = 40.0
MARGIN_S: Final = 5.0
"""Time that the load goes on beyond the comparison."""
PATIENCE_S: Final = 60.0
MEASURE: Final = "CPU per request"
_HEADERS: Final = [(b"content-type", b"text/plain"), (b"content-length", b"2")]


def application() -> ASGIApp:
    """Return what the server serves: a recorded request burns ``BENCH_AB_EXTRA_US`` more."""
    burn_ns, extra_ns = int(BURN_US * 1000), int(float(os.environ["BENCH_AB_EXTRA_US"]) * 1000)

    async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"scope type={scope['type']}: this application answers http only")
        end = time.thread_time_ns() + burn_ns + (extra_ns if current_request() is not None else 0)
        while time.thread_time_ns() < end:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": b"ok"})

    return InferenceLoggingMiddleware(answer)


class Found(NamedTuple):
    """CPU seconds of a request without recording, and the difference that recording makes, as a share."""

    off_s: float
    difference: Interval


def measure(wrk: str, extra_us: float, limit_s: float) -> Found:
    """Serve, load, and compare."""
    port = harness.free_port()
    url = f"http://{HOST}:{port}/"
    with harness.scratch_directory() as directory, (directory / "console").open("wb") as console:
        environment = harness.environment(directory=directory / "logs", queue_directory=directory / "queues")
        environment["BENCH_AB_EXTRA_US"] = str(extra_us)
        serve = [sys.executable, "-m", "uvicorn", "--factory", "loadtests.turns.bench_ab:application"]
        serve += ["--port", str(port), "--no-access-log", "--log-level", "warning"]
        with harness.process(serve, environment, console) as server:
            harness.wait_until_up(server, url, PATIENCE_S, directory / "console")
            load = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{limit_s + MARGIN_S:.0f}s", url]
            with subprocess.Popen(load, stdout=subprocess.DEVNULL) as loading:
                found = compare(environment, limit_s)
                loading.wait()
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
    return found


def compare(environment: dict[str, str], limit_s: float) -> Found:
    """Run the command, and return its measure."""
    command = [sys.executable, "-m", "inference_logging.cli.main", "ab", "--for", f"{limit_s:g}s", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ab ended with {done.returncode}: {done.stdout}{done.stderr}")
    found = next(row for row in json.loads(done.stdout)["measures"] if row["name"] == MEASURE)
    return Found(found["off"], Interval(**found["difference"]))


def judged(extra: Found, nothing: Found) -> tuple[Interval, float]:
    """Return what is found of the injected cost, without what the run with 0 % finds, and what it should be."""
    value = extra.difference.value - nothing.difference.value
    half = (extra.difference.half**2 + nothing.difference.half**2) ** 0.5
    return Interval(value, value - half, value + half), EXTRA * BURN_US / 1e6 / extra.off_s


def row(extra: Found, nothing: Found) -> dict[str, str]:
    """Return what the page of figures says of it."""
    found, injected = judged(extra, nothing)
    return {
        "what": f"`inference-logging ab`, {MEASURE}: {EXTRA:.0%} more in recorded requests",
        "ours": f"found {percent(found)}, injected {injected:+.2%}",
        "beside": f"nothing injected: {percent(nothing.difference)}",
    }


def percent(found: Interval) -> str:
    """Return an interval of shares in percent."""
    return f"{found.value:+.2%} ({found.low:+.2%} … {found.high:+.2%})"


def main() -> None:
    """Measure without and with the cost, and print whether it is found."""
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=f"of a comparison; {LIMIT_S:g} unless given")
    options = parser.parse_args()
    seconds = LIMIT_S / 2 if options.quick else options.seconds
    wrk = harness.find_wrk()
    if wrk is None:
        sys.exit(harness.NO_WRK)

    def measured() -> dict[str, Any]:
        nothing, extra = (measure(wrk, share * BURN_US, seconds) for share in (0.0, EXTRA))
        found, injected = judged(extra, nothing)
        said = row(extra, nothing)
        print(*said.values(), sep="\n")
        print(f"the injected cost is {'within' if found.holds(injected) else 'NOT within'} the interval")
        return {"seconds": seconds, "rows": [said]}

    harness.measured(options, "make bench-ab", f"{BURN_US:g} µs of CPU time a request, {seconds:g} s each", measured)


if __name__ == "__main__":
    main()
