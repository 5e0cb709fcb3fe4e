"""How long nobody listens after the listener's process is killed, and whether a record is lost or doubled by that.

    python loadtests/leadership.py --kills 50

One process produces all the time; the leading listener is killed with SIGKILL again and again, and a new process takes
the place of the dead one, before the next is killed. Printed are the times from the kill to the end of the process (a
busy machine needs a while to end one), and from there to the next leader and to its first write. At the end every
accepted record must stand in the segments exactly once, else the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from inference_logging import Config, Logger, get_logger

SIDECAR = [sys.executable, "-m", "inference_logging.cli.main", "listen", "--status-interval-s", "0"]
WORKER = [
    sys.executable,
    "-c",
    "import signal; from inference_logging import Logger; logger = Logger(); signal.pause()",
]
KINDS = {"sidecar": SIDECAR, "thread of a worker": WORKER}
LOOK_S = 0.0005
PATIENCE_S = 60.0


class Change(NamedTuple):
    """Milliseconds from the kill of a leader to its end, and from there on."""

    ended_ms: float
    led_ms: float
    wrote_ms: float


class Listeners:
    """Processes that can listen; as many as wanted, whichever are killed."""

    def __init__(self, command: list[str], config: Config, count: int) -> None:
        """Start them."""
        listening = "thread" if command is WORKER else "external"
        settings = {name: getattr(config, name) for name in config.model_fields_set} | {"listener": listening}
        self._environment = {**os.environ, **{f"INFERENCE_LOGGING_{k.upper()}": str(v) for k, v in settings.items()}}
        self._command = command
        self.count = count
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for _ in range(count):
            self.start()

    def start(self) -> None:
        """Start one more."""
        process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)
        self._running[process.pid] = process

    def kill(self, pid: int) -> None:
        """Kill one, and wait for its end."""
        process = self._running.pop(pid)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all."""
        for process in self._running.values():
            process.send_signal(signal.SIGKILL)
            process.wait()


def main() -> int:
    """Measure each kind of listener."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=30, help="kills per kind of listener")
    arguments.add_argument("--listeners", type=int, default=3, help="processes that can listen, at a time")
    options = arguments.parse_args()
    print(f"{options.kills} kills, {options.listeners} processes that can listen; milliseconds:")
    wrong = 0
    for kind, command in KINDS.items():
        with tempfile.TemporaryDirectory() as scratch:
            changes, accepted, lost, doubled = _measure(Path(scratch), command, options.kills, options.listeners)
        wrong += lost + doubled
        names = ("kill to end", "end to next leader", "end to its first write")
        for name, times in zip(names, zip(*changes, strict=True), strict=True):
            print(f"  {kind:<19} {name:<23} {_spread(times)}")
        print(f"  {kind:<19} records                 {accepted} accepted, {lost} lost, {doubled} doubled")
    return 1 if wrong else 0


def _measure(scratch: Path, command: list[str], kills: int, count: int) -> tuple[list[Change], int, int, int]:
    config = Config(listener="external", directory=scratch / "segments", queue_directory=scratch / "queues")
    with Logger(config) as logger:
        produce = _producing()
        listeners = Listeners(command, config, count)
        try:
            changes = [_kill_one(logger, listeners, produce) for _ in range(kills)]
            assert logger.flush(PATIENCE_S), "the listener does not write"
        finally:
            listeners.end()
        books = logger.stats()
    written = Counter(_sequences(config.directory, books["boot_id"]))
    doubled = sum(count - 1 for count in written.values())
    return changes, books["accepted"], books["accepted"] - len(written), doubled


def _producing() -> Iterator[bool]:
    log = get_logger("leadership")
    number = 0
    while True:
        yield log.warning("n", n=number)
        number += 1


def _kill_one(logger: Logger, listeners: Listeners, produce: Iterator[bool]) -> Change:
    def stats() -> dict[str, Any]:
        next(produce)
        return logger.service.listener_stats()

    def wait(is_so: Any) -> float:
        end = time.monotonic() + PATIENCE_S
        while not is_so(stats()):
            assert time.monotonic() < end, "no listener leads"
            time.sleep(LOOK_S)
        return time.monotonic()

    before: dict[str, Any] = {}

    def are_complete(now: dict[str, Any]) -> bool:
        before.update(now)
        waiting = sum(queue["producer"] == "elsewhere" for queue in logger.service.queues())
        return now["leader"] == "elsewhere" and _is_recent(now) and waiting == listeners.count

    wait(are_complete)
    killed = time.monotonic()
    listeners.kill(before["leader_pid"])
    ended = time.monotonic()
    led = wait(lambda now: now["leaders"] != before["leaders"])
    written = stats()["records_written"]
    wrote = wait(lambda now: now["records_written"] != written)
    listeners.start()
    return Change((ended - killed) * 1e3, (led - ended) * 1e3, (wrote - ended) * 1e3)


def _is_recent(now: dict[str, Any]) -> bool:
    age_s = now["heartbeat_age_s"]
    return age_s is not None and age_s < 0.2


def _sequences(directory: Path, boot_id: str) -> Iterator[int]:
    for path in directory.glob("*.jsonl"):
        if path.is_symlink():
            continue
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(orjson.JSONDecodeError):
                record = orjson.loads(line)
                if record.get("boot_id") == boot_id and "seq" in record:
                    yield record["seq"]


def _spread(times: tuple[float, ...]) -> str:
    ordered = sorted(times)
    high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"median {statistics.median(ordered):6.1f}  p95 {high:6.1f}  longest {ordered[-1]:6.1f}"


if __name__ == "__main__":
    sys.exit(main())
