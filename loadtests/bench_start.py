"""What a start costs: the imports, and the first request of a server.

Each import is that of a new interpreter, minus what an interpreter that imports nothing took in the same round.

A server's first request is that of a new uvicorn with a FastAPI application, minus the first request of the same
application without logging in the same round. With a lifespan everything is opened before the server accepts; without
one (``--lifespan off``, or an application that another one mounts) the first request opens it, and most of what that
takes is the queue's memory: it is reserved and mapped whole, so that no later request waits for a page.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING

from bench_loggers import free_port, memory_directory, scratch_directory
from bench_report import Report, at_most, pairwise

if TYPE_CHECKING:
    from fastapi import FastAPI

IMPORTS = {
    "import inference_logging": "import inference_logging",
    "import InferenceLoggingMiddleware": "from inference_logging import InferenceLoggingMiddleware",
    "import it, and make a Config()": "from inference_logging import Config, InferenceLoggingMiddleware; Config()",
}
USED = """
import time, os
with open("/proc/self/statm") as file: pages = int(file.read().split()[1])
print(time.process_time(), pages * os.sysconf("SC_PAGE_SIZE"))
"""
READY = b"Uvicorn running on"


def start(quick: bool) -> Report:
    """Measure the imports, and the first request with and without a lifespan."""
    rounds = 2 if quick else 21
    report = Report("start: new processes, minus the same without this package")
    _imports(report, rounds)
    for lifespan in ("on", "off"):
        _first_requests(report, rounds, lifespan)
    return report


def _imports(report: Report, rounds: int) -> None:
    goals = {"import inference_logging": (at_most(50), at_most(8))}
    found = [{name: _used(code) for name, code in {"": "pass", **IMPORTS}.items()} for _ in range(rounds)]
    for name in IMPORTS:
        cpu, memory = goals.get(name, (None, None))
        report.add(f"{name}: CPU time", "ms", [1e3 * (one[name][0] - one[""][0]) for one in found], cpu)
        report.add(f"{name}: memory", "MB", [(one[name][1] - one[""][1]) / 1e6 for one in found], memory)


def _used(code: str) -> tuple[float, int]:
    """Return the CPU time (s) and the resident memory (bytes) of an interpreter after ``code``."""
    command = [sys.executable, "-c", code + USED]
    cpu_s, resident = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(cpu_s), int(resident)


def _first_requests(report: Report, rounds: int, lifespan: str) -> None:
    plain, logged = [], []
    for _ in range(rounds):
        plain.append(_first_request("plain", lifespan))
        logged.append(_first_request("logged", lifespan))
    wall = pairwise(sub, [one[0] for one in logged], [one[0] for one in plain])
    cpu = pairwise(sub, [one[1] for one in logged], [one[1] for one in plain])
    case = "first request" if lifespan == "on" else "the same without a lifespan"
    report.add(f"{case}: without logging", "ms", [one[0] for one in plain])
    report.add(f"{case}: added", "ms", wall, at_most(20))
    report.add(f"{case}: added CPU time, all threads", "ms", cpu)


def _first_request(app: str, lifespan: str) -> tuple[float, float]:
    """Return how long the first request of a new server took, and its CPU time (ms)."""
    port = free_port()
    with ExitStack() as stack:
        directory = stack.enter_context(scratch_directory())
        queues = stack.enter_context(scratch_directory(memory_directory()))
        variables = {
            **os.environ,
            "INFERENCE_LOGGING_DIRECTORY": str(directory),
            "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(queues),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent)]),
        }
        command = [sys.executable, "-m", "uvicorn", f"bench_start:{app}", "--factory", "--lifespan", lifespan]
        process = subprocess.Popen(
            [*command, "--port", str(port), "--no-access-log"], env=variables, stderr=subprocess.PIPE
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert process.stderr is not None
        stack.callback(process.stderr.close)
        if not any(READY in line for line in process.stderr):
            raise RuntimeError("uvicorn did not start")
        time.sleep(0.2)  # until what it does after the start is done
        cpu, began = _cpu_ms(process.pid), time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /hello HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        wall = 1e3 * (time.perf_counter() - began)
        if b"200 OK" not in answer:
            raise RuntimeError(f"uvicorn answered {answer!r}")
        return wall, _cpu_ms(process.pid) - cpu


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def plain() -> FastAPI:
    """Return an application without logging."""
    from fastapi import FastAPI

    app = FastAPI()
    app.get("/hello")(hello)
    return app


def logged() -> FastAPI:
    """Return the same application with the middleware."""
    from inference_logging import InferenceLoggingMiddleware

    app = plain()
    app.add_middleware(InferenceLoggingMiddleware)
    return app


async def hello() -> dict[str, str]:
    """Answer something small."""
    return {"hello": "world"}
