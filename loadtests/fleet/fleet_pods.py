"""The pods of one zone as processes: each has directories, a queue, a listener and an instance id of its own.

    python -m loadtests.fleet.fleet_pods SETTINGS POD…
    python -m loadtests.fleet.fleet_pods SETTINGS recover POD…    writes the queues of pods that do not return

One process imports the package and forks the pods; each then opens its logger and serves requests at the times of an
arrival trace, compressed in time, from the time zero that stands in the book. Lines on standard input: ``deploy
SECONDS`` ends one pod after another within that time and starts its next process in the same volume, ``end`` ends all
of them. Answers: ``ready``, ``deployed``, ``ended``.

Each process notes what it accepted in a slot of one mapped file, the book, after each request. The kernel keeps that
when the process is killed, so the book does not depend on queue, listener or shipper. A process that is killed between
a record and its note has accepted more than the book says: what arrives of that is counted as ``beyond``, never as
missing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.cli import native
from inference_logging.prove.bench.configurations_round import STREAM, application, dropped, ignore
from loadtests.compare import arrivals
from loadtests.compare.arrivals import Arrival

SERVICE: Final = "fleet"
SAMPLE: Final = 8
"""Pods with a shipper of their own."""
ZONES: Final = 3
QUEUE_BYTES: Final = 1 << 20
_LOOK_S: Final = 0.5

_ENDING: Final = frozenset({signal.SIGTERM})
LIVES: Final = 2
"""A pod lives before the deploy and after it."""
_BEGIN: Final = struct.Struct("<d")
_SLOT: Final = struct.Struct("<5Q")

Process = tuple[str, int]
Key = tuple[str, int, int]


class Note(NamedTuple):
    """What a process has noted; ``served`` counts the arrivals of its pod that are answered, in all its lives."""

    boot_id: int
    pid: int
    accepted: int
    dropped: int
    served: int


class Book:
    """The slots of all lives of ``pods`` pods, in the file ``path``."""

    def __init__(self, path: Path, pods: int) -> None:
        """Map the file; make it where it is not there."""
        size = _BEGIN.size + pods * LIVES * _SLOT.size
        with path.open("a+b") as file:
            file.truncate(size)
            self._map, self._pods = mmap.mmap(file.fileno(), size), pods

    @property
    def begin_s(self) -> float:
        """When time zero of the fleet is, by the monotonic clock; 0: nobody has said so yet."""
        begin_s: float = _BEGIN.unpack_from(self._map)[0]
        return begin_s

    @begin_s.setter
    def begin_s(self, at_s: float) -> None:
        _BEGIN.pack_into(self._map, 0, at_s)

    def write(self, pod: int, life: int, note: Note) -> None:
        """Note it."""
        _SLOT.pack_into(self._map, self._at(pod, life), *note)

    def read(self, pod: int, life: int) -> Note:
        """Return the note; zeros: that process has not begun."""
        return Note(*_SLOT.unpack_from(self._map, self._at(pod, life)))

    def _at(self, pod: int, life: int) -> int:
        return _BEGIN.size + (pod * LIVES + life) * _SLOT.size

    def notes(self, pods: Iterable[int] | None = None) -> Iterator[Note]:
        """Return the notes of the processes that have begun, of all pods or of these."""
        every = range(self._pods) if pods is None else pods
        notes = (self.read(pod, life) for pod in every for life in range(LIVES))
        return (note for note in notes if note.boot_id)

    def accepted(self, pods: Iterable[int] | None = None) -> int:
        """Return how many records were accepted."""
        return sum(note.accepted for note in self.notes(pods))

    def processes(self) -> dict[Process, int]:
        """Return how many records each process accepted."""
        return {(f"{note.boot_id:016x}", note.pid): note.accepted for note in self.notes()}


class Counted(NamedTuple):
    """What became of the accepted records, by (boot_id, pid, seq); ``others`` are the listeners' own records."""

    accepted: int
    arrived: int
    copies: int
    beyond: int
    others: int
    missing: list[Key]

    def figures(self) -> dict[str, int]:
        """Return the counts."""
        return {**self._asdict(), "missing": len(self.missing)}


def key(record: Mapping[str, Any]) -> tuple[str, int, int | None]:
    """Return what identifies a record; the listener's own have no sequence."""
    return record["boot_id"], record["pid"], record.get("seq")


def count(processes: Mapping[Process, int], arrived: Iterable[tuple[str, int, int | None]]) -> Counted:
    """Compare what ``processes`` accepted with the keys of what arrived, each as often as it did.

    Raises ``ValueError`` for a record of a process that is not in the book.
    """
    found: Counter[tuple[str, int, int | None]] = Counter(arrived)
    expected = {(boot_id, pid, seq) for (boot_id, pid), accepted in processes.items() for seq in range(accepted)}
    numbered = {one: times for one, times in found.items() if one[2] is not None}
    unknown = {(boot_id, pid) for boot_id, pid, _ in numbered} - processes.keys()
    if unknown:
        raise ValueError(f"records of processes that the book does not have: {sorted(unknown)[:3]}")
    there = expected & numbered.keys()
    return Counted(
        accepted=len(expected),
        arrived=len(there),
        copies=sum(numbered.values()) - len(numbered),
        beyond=len(numbered) - len(there),
        others=found.total() - sum(numbered.values()),
        missing=sorted(expected - there),
    )


class Settings(NamedTuple):
    """What all pods of a run share; ``requests`` of each pod come within ``seconds``."""

    folder: str
    pods: int
    requests: int
    seconds: float
    trace: str

    @property
    def book(self) -> Path:
        """Where the book is."""
        return Path(self.folder) / "book"

    def config(self, pod: int) -> Config:
        """Return the configuration of a pod; its volume is a directory below that of its zone, or of the sample."""
        volume = Path(self.folder) / ("own" if pod < SAMPLE else f"zone-{pod % ZONES}") / f"pod-{pod}"
        places = {"directory": volume / "logs", "queue_directory": volume / "queues"}
        return Config(**{**places, "service_name": SERVICE, "queue_bytes": QUEUE_BYTES})


def shared(trace: list[Arrival], pod: int, requests: int, seconds: float) -> list[Arrival]:
    """Return the arrivals of a pod: every n-th of the trace from its own first one on, the trace's time compressed."""
    step = max(1, len(trace) // requests)
    compressed = seconds / (trace[-1].at_s or 1.0)
    own = trace[pod % step :: step][:requests]
    return [replace(arrival, at_s=arrival.at_s * compressed) for arrival in own]


class Pod:
    """One process of a pod."""

    def __init__(self, settings: Settings, pod: int, life: int, own: Sequence[Arrival]) -> None:
        self._settings, self._pod, self._life, self._arrivals = settings, pod, life, own
        self._book = Book(settings.book, settings.pods)
        self._served = self._book.read(pod, 0).served if life else 0

    def live(self) -> None:
        """Serve until SIGTERM."""
        names = f"service.instance.id=pod-{self._pod}-{self._life},k8s.pod.name=pod-{self._pod}"
        os.environ["OTEL_RESOURCE_ATTRIBUTES"] = names
        config = self._settings.config(self._pod)
        with Logger(config) as logger:
            self._note(logger)
            asyncio.run(self._serve(InferenceLoggingMiddleware(application, config), logger))
        self._note(logger)

    def _note(self, logger: Logger) -> None:
        stats = logger.stats()
        note = Note(int(stats["boot_id"], 16), os.getpid(), stats["accepted"], dropped(logger), self._served)
        self._book.write(self._pod, self._life, note)

    async def _serve(self, app: InferenceLoggingMiddleware, logger: Logger) -> None:
        ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        waits = asyncio.ensure_future(ending.wait())
        while not (self._book.begin_s or ending.is_set()):
            await asyncio.wait([waits], timeout=_LOOK_S)
        for arrival in self._arrivals[self._served :]:
            pause_s = self._book.begin_s + arrival.at_s - time.monotonic()
            if pause_s > 0 or ending.is_set():
                await asyncio.wait([waits], timeout=max(0.0, pause_s))
            if ending.is_set():
                return
            get_logger(SERVICE).info("admitted", arrival=self._served, tokens=arrival.context_tokens)
            await app(STREAM.scope(), STREAM.receive, ignore)
            self._served += 1
            self._note(logger)
        await waits


class Zone:
    """Pods whose processes are children of this one."""

    def __init__(self, settings: Settings, pods: Sequence[int]) -> None:
        """Start their first processes, which wait for time zero."""
        self._settings = settings
        trace = arrivals.read(Path(settings.trace))
        self._arrivals = {pod: shared(trace, pod, settings.requests, settings.seconds) for pod in pods}
        self._pids = dict[int, int]()
        gc.freeze()  # what the children share stays shared
        for pod in pods:
            self._start(pod, 0)

    def _start(self, pod: int, life: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # a pod that has just begun would end without its logger
        pid = os.fork()
        if not pid:
            Pod(self._settings, pod, life, self._arrivals[pod]).live()
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        self._pids[pod] = pid

    def wait_until_ready(self) -> None:
        """Wait until each has opened its logger."""
        book = Book(self._settings.book, self._settings.pods)
        while not all(book.read(pod, 0).boot_id for pod in self._pids):
            time.sleep(0.05)

    def deploy(self, seconds: float) -> None:
        """Replace one process after another, all within ``seconds`` if the machine is quick enough."""
        begun_s = time.monotonic()
        for done, pod in enumerate(list(self._pids), 1):
            self._end(pod)
            self._start(pod, 1)
            time.sleep(max(0.0, begun_s + done * seconds / len(self._pids) - time.monotonic()))

    def _end(self, *pods: int) -> None:
        for pod in pods:
            os.kill(self._pids[pod], signal.SIGTERM)
        for pod in pods:
            code = os.waitpid(self._pids[pod], 0)[1]
            if code:
                raise RuntimeError(f"pod {pod} ended with {code}")

    def end(self) -> None:
        """End all of them at once."""
        self._end(*self._pids)


def main() -> None:
    """Obey standard input, or recover."""
    settings = Settings(**json.loads(sys.argv[1]))
    if sys.argv[2] == "recover":
        sys.exit(max(native.run(["recover"], settings.config(int(pod))) for pod in sys.argv[3:]))
    zone = Zone(settings, [int(pod) for pod in sys.argv[2:]])
    zone.wait_until_ready()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *seconds = line.split()
        if word == "deploy":
            zone.deploy(float(seconds[0]))
            print("deployed", flush=True)
        else:
            zone.end()
            print("ended", flush=True)
            return


if __name__ == "__main__":
    main()
