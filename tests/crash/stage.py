"""Where processes are started and killed: by a seed, at instants that the processes know nothing of."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import select
import signal
import struct
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from inference_logging import Config
from tests.crash.journal import Journal
from tests.crash.producing import produce
from tests.kit import sidecars

Produce = Callable[[Config, int, int], NoReturn]

_PATIENCE_S = 180.0
# struct flock: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi")
# Where it stands in the control page.
_LEADER_PID = slice(24, 28)
# The first part of a mapped queue, which begins with its header: the address, and the boot id.
_MAPPED_QUEUE = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ \S+ 0+ .*/([0-9a-f]+)\.queue\b", re.MULTILINE)
# Where they stand in the header: the ring's head, whose upper half counts records, and the counts of refused records.
_HEAD, _DROPPED = slice(128, 136), slice(512, 512 + 384)


class Stage:
    """The processes of one act, and the journal of what their emits accepted.

    The same seed gives the same choices and pauses; at which instruction a process dies is the scheduler's choice.
    """

    def __init__(self, config: Config, seed: int, kills_of_an_act: int, produce: Produce = produce) -> None:
        self.config = config
        self.kills_of_an_act = kills_of_an_act
        self.random = random.Random(seed)
        self.journal = Journal(self._born)
        self.kills = 0
        self._produce = produce
        self._lives = 0
        self._producers: dict[int, int] = {}
        self._listeners: dict[int, int] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # The test has failed; nothing may be left running.
            self.journal.close_writing()
            with contextlib.suppress(AssertionError):
                self._kill_all()
        self.journal.close()

    def start_producer(self) -> int:
        """Start a process that emits and journals; return its pid."""
        self._lives += 1
        life = self._lives
        pid = _fork(lambda: self._produce(self.config, self.journal.writing, life))
        self._born(life, pid)
        return pid

    def start_listener(self) -> int:
        """Start ``listen`` of the command that the test is about; return its pid."""
        process = subprocess.Popen(
            [*sidecars.LISTEN, "--status-interval-s", "0"],
            env={**os.environ, **environment(self.config)},
            stderr=subprocess.DEVNULL,
        )
        self._listeners[process.pid] = os.pidfd_open(process.pid)
        process.returncode = 0  # its end is waited for here, not by that object
        return process.pid

    def go_on(self, mean_s: float = 0.06) -> None:
        """Let them run for a while that they can't foresee."""
        self.journal.read_until(time.monotonic() + min(self.random.expovariate(1 / mean_s), 5 * mean_s))

    def go_on_for(self, duration_s: float) -> None:
        """Let them run for so long."""
        self.journal.read_until(time.monotonic() + duration_s)

    def go_on_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Let them run until something has happened, and return it."""
        end = time.monotonic() + _PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < end, f"waited in vain for: {what}"
            self.journal.read_until(time.monotonic() + 0.005)
        return found

    @property
    def producers(self) -> int:
        """How many processes emit."""
        return len(self._producers)

    def any_producer(self) -> int:
        """Choose one that is alive: a process of the stage's or a child of one."""
        return self.random.choice(sorted(self._producers))

    def oldest_producer(self) -> int:
        """Return the one that was reported first of those that are alive; its children are younger."""
        return next(iter(self._producers))

    def go_on_until_written(self, pid: int) -> None:
        """Let them run until no queue is left of a process that was killed."""
        queues = self.config.resolved_queue_directory
        self.go_on_until(lambda: all(_owner(path) != pid for path in queues.glob("*.queue")), "its queue to be written")

    def leader(self) -> int | None:
        """Return the pid of the process whose listener leads, if any does now."""
        try:
            with (self.config.resolved_queue_directory / "leader.lock").open("rb+") as file:
                asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, *_ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
            control = next(self.config.resolved_queue_directory.glob("control-*")).read_bytes()
        except (FileNotFoundError, StopIteration):
            return None
        # The lock is an open file's and names no process. Who leads says so once it has the lock.
        pid = int.from_bytes(control[_LEADER_PID], "little")
        return pid if kind != fcntl.F_UNLCK and pid in {*self._producers, *self._listeners} else None

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal that does not end them to all that emit."""
        for pid in self._producers:
            self.signal(pid, number)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal that does not end the process."""
        signal.pidfd_send_signal(self._producers[pid], number)

    def are_the_living_found(self) -> bool:
        """Look whether each process that lives has a queue in the directory, and nobody else."""
        owners = {_owner(path) for path in self.config.resolved_queue_directory.glob("*.queue")}
        return owners == {*self._producers, *self._listeners}

    def queues_of_producers(self) -> set[str]:
        """Return the boot ids of the queues into which somebody emits."""
        queues = self.config.resolved_queue_directory.glob("*.queue")
        return {path.stem for path in queues if _owner(path) in self._producers}

    def mapped_queues(self) -> set[str]:
        """Return the boot ids of the queues that those who emit have mapped, with a name or without."""
        # They are forked from this process, with the queues that it had mapped.
        return set().union(*map(_mapped, self._producers)) - _mapped(os.getpid())

    def untouched_queues(self) -> set[str]:
        """Return those of the mapped queues of which there is nothing to report: no record came, none was refused."""
        return {queue for pid in self._producers for queue, at in _mapped_at(pid) if _is_untouched(pid, at)}

    def kill(self, pid: int) -> None:
        """Kill -9, and wait for the end."""
        processes = self._producers if pid in self._producers else self._listeners
        descriptor = processes.pop(pid)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        self.kills += 1
        assert select.select([descriptor], [], [], _PATIENCE_S)[0], f"process {pid} does not die"
        os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)  # if it is our own child

    def end(self) -> None:
        """Kill all, as the end of a host does; read the journal to its end."""
        self.journal.close_writing()
        self._kill_all()

    def _kill_all(self) -> None:
        # Some at a time: children whose parents died before they reported themselves are born meanwhile.
        end = time.monotonic() + _PATIENCE_S
        while self._producers or self.journal.read_until(time.monotonic() + 0.05):
            for pid in [*self._producers]:
                self.kill(pid)
            assert time.monotonic() < end, "the journal does not end: some process lives and reports nothing"
        for pid in [*self._listeners]:
            self.kill(pid)

    def _born(self, life: int, pid: int) -> None:
        self._producers[pid] = os.pidfd_open(pid)


def _fork(work: Callable[[], NoReturn]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(1)


def _mapped(pid: int) -> set[str]:
    return {queue for queue, _ in _mapped_at(pid)}


def _mapped_at(pid: int) -> list[tuple[str, int]]:
    """Return the queues that a process has mapped, and the address of each one's header."""
    found = _MAPPED_QUEUE.findall(Path(f"/proc/{pid}/maps").read_text())
    return [(queue, int(address, 16)) for address, queue in found]


def _is_untouched(pid: int, address: int) -> bool:
    # It may have let go of the mapping since.
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        header = memory.read(_DROPPED.stop)
        return int.from_bytes(header[_HEAD], "little") >> 32 == 0 and not any(header[_DROPPED])
    return False


def _owner(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return int.from_bytes(file.read(16)[12:], "little")
    return 0


def directories(config: Config) -> list[Path]:
    """Return where the segments of this configuration can be."""
    return [config.directory, *([Path(config.fallback)] if config.fallback.startswith("/") else [])]


def environment(config: Config) -> dict[str, str]:
    """Return the variables that give another process this configuration."""
    return {f"INFERENCE_LOGGING_{name.upper()}": str(getattr(config, name)) for name in config.model_fields_set}
