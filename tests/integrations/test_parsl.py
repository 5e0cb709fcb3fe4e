"""What Parsl's processes log, with a real HighThroughputExecutor: submit process, interchange, manager and workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from inference_logging._native import queues_of
from loadtests.engine import bench_parsl
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.parsl

ROOT = Path(__file__).parent.parent.parent

EXAMPLE = ROOT / "examples" / "parsl" / "main.py"
MESSAGE = re.compile(r"^\d{10,}\.\d{6} \d{4}-\d\d-\d\d .*?-(\d+) ", re.MULTILINE)
"""How a message begins in Parsl's own files: its time, then the names of process and thread with their numbers."""
BEGINNING = re.compile(r"\S+ \S+ \S+ \S+?-(?P<pid>\d+) \S+ (?P<logger>\S+):(?P<line>\d+) (?P<function>\S+) \w+: ")
"""The first line of a message in Parsl's own files, after the time; its text follows."""

PER_TASK = 24
"""How many messages this version of Parsl makes of a task: 21 in the submit process, three in the worker."""

Line = tuple[str, int, str, str]


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skip the test where Parsl is not installed."""
    if (lacking := bench_parsl.missing()) is not None:
        pytest.skip(f"missing: {lacking}")


def messages(directory: Path) -> dict[int, Counter[Line]]:
    """Return logger, line, function and text of each message in Parsl's own files, by process; without tracebacks."""
    found: dict[int, Counter[Line]] = defaultdict(Counter)
    for file in directory.glob("runinfo/**/*.log"):
        text = file.read_text(encoding="utf-8")
        starts = [match.start() for match in MESSAGE.finditer(text)]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            message = text[start:end].removesuffix("\n")
            match = BEGINNING.match(message)
            assert match is not None, message
            said, _, _ = message[match.end() :].partition("\nTraceback (most recent call last):")
            line = (match["logger"], int(match["line"]), match["function"], said)
            found[int(match["pid"])][line] += 1
    return found


def records(directory: Path) -> dict[int, Counter[Line]]:
    """Return the same of the records."""
    found: dict[int, Counter[Line]] = defaultdict(Counter)
    for record in read_records(directory, "log"):
        place = record["attributes"]
        line = (record["logger"], place["code.line.number"], place["code.function.name"], record["message"])
        found[record["pid"]][line] += 1
    return found


def write_the_rest(program: bench_parsl.Program) -> None:
    """Wait until no process of it is left, and write what the last ones have left in their queues."""
    wait_until(lambda: all(queue["producer"] == "nobody" for queue in queues_of(program.queues)), "workers to end")
    command = [sys.executable, "-m", "inference_logging.cli.main", "recover", str(program.queues)]
    file = program.queues / "configuration.yaml"
    subprocess.run([*command, "--config", str(file)], check=True, stdout=subprocess.DEVNULL)


def test_every_message_of_every_process_is_a_record_also_of_a_worker_that_was_killed() -> None:
    with bench_parsl.running("counted") as program:
        program.ms_per_task(200)
        program.kill_a_worker()
        program.ms_per_task(200)
        program.end()
        write_the_rest(program)
        logged, recorded = messages(program.directory), records(program.directory / "logs")
        ends = read_records(program.directory / "logs", "process.ended")
        lines = read_records(program.directory / "logs", "log")
    assert sum(of_one.total() for of_one in logged.values()) > 400 * PER_TASK
    # A line becomes a record first, so the file of a process that was killed can lack its last one.
    lacking = {pid: less for pid, of_one in logged.items() if (less := of_one - recorded[pid])}
    assert lacking == {}
    assert sum(of_one.total() for of_one in recorded.values()) - sum(of_one.total() for of_one in logged.values()) <= 1
    assert any("\n" in text for of_one in recorded.values() for *_, text in of_one), "no message of several lines"
    names = Counter(end["producer_name"] for end in ends)
    assert names == {"parsl": 1, "interchange": 1, "manager": 1, "worker_0": 2}, "one of the workers was killed"
    killed = min((end for end in ends if end["producer_name"] == "worker_0"), key=lambda end: str(end["started"]))
    # The task that killed it followed on this line at once.
    assert [line["message"] for line in lines if line["pid"] == killed["pid"]][-1] == "Received executor task 202"
    error = next(line["attributes"] for line in lines if "exception.type" in line["attributes"])
    assert error["exception.type"].endswith("WorkerLost")
    assert "Traceback" in error["exception.stacktrace"]


def test_each_task_has_all_its_records_also_without_files_beside_them() -> None:
    tasks = 100
    with bench_parsl.running("ours") as program:
        program.ms_per_task(tasks)
        program.end()
        write_the_rest(program)
        lines = read_records(program.directory / "logs", "log")
        assert not list(program.directory.rglob("*.log"))
    counts = Counter((line["logger"], line["attributes"]["code.line.number"]) for line in lines)
    made = tasks + 1  # with the one that is run until the first worker is there
    assert sum(count // made for count in counts.values()) == PER_TASK


def run(directory: Path, *command: str) -> str:
    """Run a command of Parsl's environment in ``directory``."""
    environment = bench_parsl.environment(directory / "queues")
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_shows_the_lines_of_all_processes_and_leaves_no_files_of_parsl(tmp_path: Path) -> None:
    output = run(tmp_path, str(bench_parsl.VENV / "bin" / "python"), str(EXAMPLE))
    total, *counts = output.splitlines()
    assert total == str(2 * sum(range(100)))
    found = {logger: int(count) for count, logger in map(str.split, counts)}
    # Three lines for each task, and that each of the two workers has started.
    assert found["parsl.executors.high_throughput.process_worker_pool"] >= 3 * 100 + 2
    assert found["parsl.dataflow.dflow"] > 10 * 100
    assert found["parsl.executors.high_throughput.interchange"] > 1
    assert not list(tmp_path.rglob("*.log"))


def test_the_example_is_a_configuration_for_the_benchmark_of_parsl(tmp_path: Path) -> None:
    output = run(tmp_path, str(bench_parsl.VENV / "bin" / "parsl-perf"), "--config", str(EXAMPLE), "--iterate", "5,5")
    assert output.count("Tasks per second") == 2
    assert len({record["pid"] for record in read_records(tmp_path / "logs", "log")}) >= 4


def test_a_wrong_level_is_refused_by_name(tmp_path: Path) -> None:
    program = "from inference_logging.parsl import ParslLogging; ParslLogging(worker_level='LOUD')"
    command = [str(bench_parsl.VENV / "bin" / "python"), "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "ValueError: worker_level='LOUD': must be one of TRACE, DEBUG, INFO" in done.stderr
