"""What logging costs a real Triton server, as ratios to no logging: ``make bench-triton``.

    python -m loadtests.engine.bench_triton [--quick] [--json PATH]

One server has a model for each way of logging. They are loaded by turns, a second each, in an order by chance; each is
compared with the model without logging in the same round, and ``control`` is that model once more. ``cost`` is a model
that measures inside of ``execute`` what one call of each takes. loadtests/README.md says more.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from loadtests import harness
from loadtests.harness import (
    HOST,
    ROOT,
    Report,
    at_least,
    at_most,
    free_port,
    memory_directory,
    scratch_directory,
    sections,
)

CONNECTIONS: Final = 16
START_S: Final = 60.0
EXIT_TIMEOUT_S: Final = 20
BASE: Final = "bare"
WAYS: Final = ("ours", "ours_without_tensors", "triton_logger", "stdlib_file", "stdlib_queue")
ARMS: Final = (BASE, "control", *WAYS)
CPU: Final = "CPU per request"
UNITS: Final = {"infer/s": "infer/s", "p99": "ms", CPU: "µs"}
COSTS: Final = (
    "ours, begin and end", "ours, once more", "reading the same fields", "triton_logger", "stdlib_file", "stdlib_queue",
    "request_id", "correlation_id", "parameters", "inputs", "shape of an input",
    "has_error", "output_tensors", "name of an output", "shape of an output",
)  # fmt: skip
GOAL: Final = at_least(0.99)
CLOSE: Final = 0.01
"""Half of the widest interval that can say whether it is reached."""
NEEDED: Final = "minutes that infer/s: ours ÷ none ± 1 % takes"
ADDED: Final = "CPU that ours adds to a request"
BODY: Final = {"id": "0123456789", "inputs": [{"name": "X", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}
CONFIG: Final = """backend: "python"
max_batch_size: 0
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "{output}" data_type: {kind} dims: [ {size} ] }} ]
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
"""


class Server(NamedTuple):
    """The server under test, running, and our listener."""

    process: subprocess.Popen[bytes]
    listener: subprocess.Popen[bytes]
    url: str
    directory: Path
    queues: Path

    def load(self, wrk: str, model: str) -> dict[str, float]:
        """Load one model for a second; CPU is that of the server, its stubs and the listener."""
        script, before = harness.post_script(self.directory, BODY), self._cpu_s()
        found = harness.run_wrk(wrk, f"{self.url}/v2/models/{model}/infer", 1, CONNECTIONS, script)
        cpu_us = (self._cpu_s() - before) * 1e6 / found.requests
        return {"infer/s": found.per_s, "p99": found.p99_ms, CPU: cpu_us}

    def _cpu_s(self) -> float:
        processes = (self.process.pid, self.listener.pid, *harness.children(self.process.pid))
        return sum(map(harness.cpu_s, processes))

    def stop_and_count(self) -> str:
        """End it; raise ``RuntimeError`` unless our records are as many as requests that Triton has counted."""
        stats = json.loads(harness.get(f"{self.url}/v2/models/ours/stats"))
        accepted = int(stats["model_stats"][0]["inference_stats"]["success"]["count"])
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(EXIT_TIMEOUT_S + 15)
        time.sleep(1.0)
        records = len(harness.lines(self.directory / "log", b'"triton.model_name":"ours"'))
        harness.check_books(self.directory / "log", self.queues, accepted, records)
        return f"{records:,} requests to ours by Triton's count, as many records; verify: the books balance"


def triton(quick: bool) -> list[Report]:
    """Measure all ways of logging in one server."""
    report = Report(f"Triton: HTTP, {CONNECTIONS} connections, 2 instances of each model, ratios to no logging")
    cost = Report("Triton: one call inside of execute, by turns")
    wrk = harness.find_wrk()
    if wrk is None:
        report.remarks.append(harness.NO_WRK)
        return [report]
    loads: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    with scratch_directory() as directory, running(directory) as server:
        for model in (BASE, *WAYS):
            server.load(wrk, model)
        begun = time.monotonic()
        for _ in range(1 if quick else 80):
            for arm in random.sample(ARMS, len(ARMS)):
                loads[arm].append(server.load(wrk, BASE if arm == "control" else arm))
        minutes = (time.monotonic() - begun) / 60
        asked = f"{server.url}/v2/models/cost/infer"
        answers = [json.loads(harness.get(asked, BODY, 120.0)) for _ in range(1 if quick else 5)]
        report.remarks.append(server.stop_and_count())
    for name, unit in UNITS.items():
        report.add(f"{name}: none", unit, (turn[name] for turn in loads[BASE]))
        for arm in ARMS[1:]:
            goal = GOAL if (name, arm) == ("infer/s", "ours") else None
            found = [one[name] / none[name] for one, none in zip(loads[arm], loads[BASE], strict=True)]
            report.add(f"{name}: {arm} ÷ none", "×", found, goal)
    (half,) = (figure.found.half for figure in report.figures if figure.goal)
    report.add(NEEDED, "min", [minutes * (half / CLOSE) ** 2])
    added = (ours[CPU] - none[CPU] for ours, none in zip(loads["ours"], loads[BASE], strict=True))
    report.add(ADDED, "µs", added)
    rounds = [one for answer in answers for one in by_rounds(answer["outputs"][0]["data"])]
    for name, taken in zip(COSTS, zip(*rounds, strict=True), strict=True):
        cost.add(name, "µs", (nanoseconds / 1e3 for nanoseconds in taken))
    cost.add("control: ours ÷ ours", "×", (one[0] / one[1] for one in rounds))
    cost.add("ours, beyond reading the fields", "µs", ((one[0] - one[2]) / 1e3 for one in rounds), at_most(1.0))
    return [report, cost]


def by_rounds(data: list[float]) -> list[list[float]]:
    """Divide what ``cost`` answers into its rounds: a figure for each of ``COSTS``."""
    return [data[at : at + len(COSTS)] for at in range(0, len(data), len(COSTS))]


def make_models(directory: Path) -> None:
    """Make the model repository: the same model for each way, and the one that measures inside."""
    sources = Path(__file__).with_name("triton_models")
    for name in (BASE, *WAYS, "cost"):
        (directory / name / "1").mkdir(parents=True)
        shutil.copy(sources / ("cost.py" if name == "cost" else "echo.py"), directory / name / "1" / "model.py")
        output = {"output": "Y", "kind": "TYPE_FP32", "size": -1, "instances": 2}
        if name == "cost":
            output = {"output": "NANOSECONDS", "kind": "TYPE_FP64", "size": -1, "instances": 1}
        (directory / name / "config.pbtxt").write_text(f'name: "{name}"\n{CONFIG.format(**output)}', encoding="utf-8")


@contextmanager
def running(directory: Path) -> Iterator[Server]:
    """Run a server and our listener beside it."""
    venv = ROOT / ".venv-triton"
    (home,) = venv.glob("lib/python3*/site-packages/pytriton/tritonserver")
    make_models(directory / "models")
    ports = {name: free_port() for name in ("http", "grpc", "metrics")}
    console, url, region = directory / "console.log", f"http://{HOST}:{ports['http']}", f"bench{os.getpid()}_"
    with scratch_directory(memory_directory()) as queues, console.open("wb") as said:
        variables = harness.environment(
            directory=directory / "log", queue_directory=queues, listener="external", server_record="off"
        )
        libraries = [str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH", "")]
        variables["PATH"] = f"{venv / 'bin'}{os.pathsep}{variables['PATH']}"
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        variables["BENCH_DIRECTORY"] = str(directory)
        command = [
            home / "bin" / "tritonserver",
            f"--model-repository={directory / 'models'}",
            f"--backend-directory={home / 'backends'}",
            *(f"--{name}-address={HOST}" for name in ports),
            *(f"--{name}-port={port}" for name, port in ports.items()),
            "--disable-auto-complete-config",
            "--allow-gpu-metrics=false",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
            f"--backend-config=python,shm-region-prefix-name={region}",
        ]
        listen = [str(Path(sys.executable).with_name("inference-logging")), "listen", "--status-interval-s", "0"]
        listener = subprocess.Popen(listen, env=variables, stderr=said)
        try:
            with harness.process(command, variables, said) as process:
                harness.wait_until_up(process, f"{url}/v2/health/ready", START_S, console)
                yield Server(process, listener, url, directory, queues)
        finally:
            listener.send_signal(signal.SIGTERM)
            listener.wait(30)
            for left in Path("/dev/shm").glob(f"{region}*"):
                left.unlink(missing_ok=True)


def main() -> None:
    """Measure and print."""
    options = harness.parser(__doc__).parse_args()
    how = "median (its interval of 95 %)"
    harness.measured(options, "make bench-triton", how, lambda: {"sections": sections(triton(options.quick))})


if __name__ == "__main__":
    main()
