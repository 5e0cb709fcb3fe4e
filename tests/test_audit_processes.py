"""The audit lane across processes: what was awaited survives every kill, once and in one chain."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from inference_logging._native import LineChain
from tests.support import wait_until

pytestmark = pytest.mark.servers

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


@pytest.fixture(name="parameters")
def _parameters(tmp_path: Path) -> dict[str, Any]:
    directories = {"directory": str(tmp_path / "logs"), "queue_directory": str(tmp_path / "queues")}
    # Segments end every few commits, so that kills meet footers, headers and new names too.
    return {"service_name": "t", **directories, "audit": "on", "audit_block_s": 120, "rotate_bytes": 20_000}


@contextmanager
def producer(parameters: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that makes audit records until it is killed."""
    command = [sys.executable, "-c", PRODUCER, json.dumps(parameters)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def environment(parameters: dict[str, Any]) -> dict[str, str]:
    """Return the environment that gives another process these parameters."""
    return {**os.environ, **{f"INFERENCE_LOGGING_{name.upper()}": str(value) for name, value in parameters.items()}}


@contextmanager
def sidecar(parameters: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `inference-logging listen` with the same configuration."""
    command = [sys.executable, "-m", "inference_logging.cli.main", "listen", "--status-interval-s", "0"]
    with subprocess.Popen(command, env=environment(parameters), stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def read(process: subprocess.Popen[bytes], count: int | None = None) -> Acknowledged:
    """Read what a producer acknowledged: so many records, or all that a killed one has reported."""
    assert process.stdout is not None
    lines = process.stdout if count is None else (process.stdout.readline() for _ in range(count))
    return {(process.pid, *map(int, line.split())) for line in lines if line.endswith(b"\n")}  # type: ignore[misc]


def recover(parameters: dict[str, Any]) -> None:
    """Let another process's listener write what is left."""
    with Logger(Config(**{**parameters, "listener": "thread"})) as logger:
        queues = Path(parameters["queue_directory"]) / "audit"
        wait_until(lambda: len(list(queues.glob("*.queue"))) == 1, "only the recoverer's own queue is left")
        assert logger.flush(60.0)


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


@pytest.mark.parametrize("seed", range(4))
def test_what_a_killed_process_had_awaited_is_there_once_and_the_chain_goes_on(
    parameters: dict[str, Any], seed: int
) -> None:
    chance, acknowledged = random.Random(seed), set()
    for _ in range(3):
        with producer(parameters) as process:
            acknowledged |= read(process, chance.randrange(1, 400))
            process.send_signal(signal.SIGKILL)
            acknowledged |= read(process)
    recover(parameters)
    check(parameters, acknowledged)


def test_sqlite_has_what_a_killed_process_had_awaited_once(parameters: dict[str, Any]) -> None:
    parameters["audit_sink"] = "sqlite"
    acknowledged: Acknowledged = set()
    for count in (10, 70, 200):
        with producer(parameters) as process:
            acknowledged |= read(process, count)
            process.send_signal(signal.SIGKILL)
            acknowledged |= read(process)
    recover(parameters)
    check_database(parameters, acknowledged)


def test_sqlite_has_what_a_killed_sidecar_committed_and_what_recover_finds(parameters: dict[str, Any]) -> None:
    parameters |= {"audit_sink": "sqlite", "listener": "external"}
    with sidecar(parameters) as listener, producer(parameters) as process:
        acknowledged = read(process, 200)
        listener.kill()
        listener.wait(60)
        process.kill()
        acknowledged |= read(process)
    assert list(Path(parameters["queue_directory"]).glob("audit/*.queue"))
    command = [sys.executable, "-m", "inference_logging.cli.main", "recover"]
    done = subprocess.run(command, env=environment(parameters), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    check_database(parameters, acknowledged)


def check_database(parameters: dict[str, Any], acknowledged: Acknowledged) -> None:
    """Every acknowledged record stands in the database once, and `verify` reads it."""
    path = Path(parameters["directory"]) / "audit" / "t-audit.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        rows = [json.loads(line) for (line,) in connection.execute("SELECT line FROM records")]
    found = [(line["pid"], line["task"], line["number"]) for line in rows if line["event_name"] == "decision"]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    verified = verify(parameters)
    assert verified.returncode == 0, verified.stdout


def test_when_the_leading_process_is_killed_the_others_awaits_go_on(parameters: dict[str, Any]) -> None:
    with producer(parameters) as first, producer(parameters) as second, producer(parameters) as third:
        acknowledged = read(first, 50) | read(second, 50) | read(third, 50)
        for process, others in ((first, (second, third)), (second, (third,))):
            process.kill()
            acknowledged |= read(process)
            for other in others:
                acknowledged |= read(other, 300)
        third.kill()
        acknowledged |= read(third)
    recover(parameters)
    check(parameters, acknowledged)


def test_a_sidecar_commits_for_others_and_the_next_one_takes_over_when_it_is_killed(
    parameters: dict[str, Any],
) -> None:
    parameters["listener"] = "external"
    with producer(parameters) as one, producer(parameters) as other, sidecar(parameters) as first:
        acknowledged = read(one, 100) | read(other, 100)
        with sidecar(parameters):
            first.kill()
            acknowledged |= read(one, 1000) | read(other, 1000)
            one.kill()
            other.kill()
            acknowledged |= read(one) | read(other)
    recover(parameters)
    check(parameters, acknowledged)
