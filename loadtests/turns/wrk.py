"""wrk, which loads a server over kept connections from the last core."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 32


def run_wrk(
    wrk: str, url: str, seconds: int, connections: int = CONNECTIONS, script: Path | None = None
) -> tuple[int, float]:
    """Load ``url`` from the last core, with a Lua script if one is given; return requests and requests per second."""
    cores = os.sched_getaffinity(0)
    load_core = str(max(cores))
    command = ["taskset", "-c", load_core, wrk, "-t1", f"-c{connections}", f"-d{seconds}s", url]
    command += ["-s", str(script)] if script else []
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"wrk saw errors:\n{output}")
    requests = re.search(r"(\d+) requests in", output)
    rate = re.search(r"Requests/sec:\s*([\d.]+)", output)
    if not requests or not rate:
        raise RuntimeError(f"wrk's answer was not understood:\n{output}")
    return int(requests[1]), float(rate[1])


def find_wrk() -> str | None:
    """Return the path of wrk; install the Debian package if it is missing and we may."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("wrk is missing: apt-get install wrk", flush=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", "wrk"], stdout=subprocess.DEVNULL, check=False)
    return shutil.which("wrk")
