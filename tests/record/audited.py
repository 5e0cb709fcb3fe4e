"""What the tests of the audit lane share: loggers that have one, and what stands in its segments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inference_logging import Logger
from inference_logging._native import LineChain
from tests.kit.command_line import run

Open = Callable[..., Logger]


def lines(directory: Path) -> list[str]:
    """Return the lines of all audit segments as they stand in the files now."""
    paths = sorted(directory.glob("logs/audit/t-audit-*.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


def records(directory: Path, event: str | None = None) -> list[dict[str, Any]]:
    """Return the audit records in the files, those of ``event`` or all that processes made."""
    found = [json.loads(line) for line in lines(directory)]
    wanted = [event] if event is not None else []
    return [line for line in found if (line["event_name"] in wanted if wanted else line.get("seq") is not None)]


def problems(directory: Path, *more: str) -> list[dict[str, Any]]:
    """Return what `inference-logging verify` finds wrong."""
    done = run("verify", str(directory / "logs"), "--queue-directory", str(directory / "queues"), "--json", *more)
    report = json.loads(done.out)
    assert done.code == (1 if report["problems"] else 0)
    found: list[dict[str, Any]] = report["problems"]
    return found


# Reports each record through a pipe once its commit was awaited: a journal of its own, which no kill can take back.
PRODUCER = """
import asyncio, json, os, sys
from inference_logging import Config, Logger

logger = Logger(Config(**json.loads(sys.argv[1])))

async def task(task):
    number = 0
    while True:
        assert await logger.audit("decision", task=task, number=number)
        os.write(1, b"%d %d\\n" % (task, number))
        number += 1

async def main():
    await asyncio.gather(*(task(number) for number in range(8)))

asyncio.run(main())
"""


Acknowledged = set[tuple[int, int, int]]


@contextmanager
def producer(parameters: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that makes audit records until it is killed."""
    command = [sys.executable, "-c", PRODUCER, json.dumps(parameters)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read(process: subprocess.Popen[bytes], count: int | None = None) -> Acknowledged:
    """Read what a producer acknowledged: so many records, or all that a killed one has reported."""
    assert process.stdout is not None
    lines = process.stdout if count is None else (process.stdout.readline() for _ in range(count))
    return {(process.pid, *map(int, line.split())) for line in lines if line.endswith(b"\n")}  # type: ignore[misc]


def killed(process: subprocess.Popen[bytes], count: int) -> Acknowledged:
    """Kill a producer after so many records; return all that it acknowledged."""
    acknowledged = read(process, count)
    process.kill()
    return acknowledged | read(process)


def check(parameters: dict[str, Any], acknowledged: Acknowledged) -> None:
    """Every acknowledged record stands in the segments, each record once, all lines in one chain."""
    chain, found = LineChain("blake3", None, None), []
    for path in sorted(Path(parameters["directory"]).glob("audit/t-audit-*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            assert chain.check(line.removesuffix(b"\n")), f"{path.name}: {line!r}"
            found.append(json.loads(line))
    records = [line for line in found if line["event_name"] == "decision"]
    identities = [(line["boot_id"], line["seq"]) for line in records]
    assert len(identities) == len(set(identities)), "once"
    assert acknowledged <= {(line["pid"], line["task"], line["number"]) for line in records}
    assert acknowledged
    verified = verify(parameters)
    assert verified.returncode == 0, verified.stdout


def verify(parameters: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run `inference-logging verify` over the segments and what is left of queues."""
    where = [parameters["directory"], "--queue-directory", parameters["queue_directory"]]
    command = [sys.executable, "-m", "inference_logging.cli.main", "verify", *where]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
