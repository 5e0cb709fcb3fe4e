"""A fleet on one machine: pods, their shippers and a Kafka of three zones, while parts of it die.

    python -m loadtests.fleet.fleet_simulation [--pods 1 10 100 1000] [--requests 100] [--seconds 150] [--page]

loadtests/results/fleet/README.md says what is real in it, what happens, and how it is counted. With ``--page`` the
result is kept, and that page is written from it. Figures of cost are CPU times of processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from loadtests import results
from loadtests.compare import arrivals
from loadtests.fleet import fleet_page
from loadtests.fleet.fleet_count import Book, count, key
from loadtests.fleet.fleet_kafka import Cluster, record_of
from loadtests.fleet.fleet_pods import SAMPLE, SERVICE, ZONES, Settings
from loadtests.fleet.fleet_processes import Child

EVENTS: Final = {
    "broker killed": 0.2, "broker starts again": 0.3, "zone lost": 0.45, "deploy begins": 0.55, "deploy ends": 0.95
}  # fmt: skip
"""When, as a share of the run."""
LOST: Final = 2
"""The zone that is lost."""
_LOOK_S: Final = 2.0
_SHIP: Final = [sys.executable, "-m", "inference_logging.cli.main", "ship"]
_PODS: Final = [sys.executable, "-m", "loadtests.fleet.fleet_pods"]


class Run:
    """One fleet, from its start to its count."""

    def __init__(self, folder: Path, settings: Settings, cluster: Cluster) -> None:
        """Prepare."""
        self._folder, self._settings, self._cluster = folder, settings, cluster
        folder.mkdir()
        self._topic = f"{SERVICE}-{settings.pods}"
        self._to = f"kafka://{cluster.addresses}/{self._topic}"
        self._pods = [range(zone, settings.pods, ZONES) for zone in range(ZONES)]
        self._book = Book(settings.book, settings.pods)
        self._curve: list[tuple[float, int, int]] = []
        self._events: dict[str, float] = {}
        self._own: dict[int, list[Child]] = {}
        """Shippers of the sample, by pod."""
        self._zones: dict[int, Child] = {}
        self._begun_s = 0.0
        self._following: dict[int, Child] = {}
        """The other shippers, by zone."""

    def simulate(self) -> dict[str, Any]:
        """Let it run, and return what was found."""
        self._cluster.make(self._topic)
        # All at once: the machine needs a while for a thousand.
        self._zones = {at: self._zone(at, pods) for at, pods in enumerate(self._pods) if pods}
        for zone in self._zones.values():
            assert zone.hear() == "ready"
        for pod in range(min(SAMPLE, self._settings.pods)):
            self._own[pod] = [self._shipper(pod)]
        for at, pods in enumerate(self._pods):
            if any(pod >= SAMPLE for pod in pods):
                self._following[at] = self._follow(at)
        self._begun_s = self._book.begin_s = time.monotonic() + 2.0
        try:
            with self._looking():
                self._let_things_happen()
                self._drain()
        finally:
            self._end()
        return self._found()

    def _end(self) -> None:
        """Make sure that nothing is left."""
        for child in [*self._zones.values(), *self._following.values(), *chain.from_iterable(self._own.values())]:
            child.kill()

    def _zone(self, at: int, pods: Sequence[int]) -> Child:
        return self._pods_process(f"zone-{at}", *map(str, pods))

    def _pods_process(self, name: str, *arguments: str) -> Child:
        return Child(*_PODS, json.dumps(self._settings._asdict()), *arguments, said=self._said(name))

    def _shipper(self, pod: int, *options: str) -> Child:
        return Child(*_SHIP, "--to", self._to, "--directory", self._logs(pod), *options, said=self._said(f"ship-{pod}"))

    def _follow(self, at: int, *options: str) -> Child:
        each = ("--each", self._folder / f"zone-{at}" / "{pod}" / "logs", "--state", self._state(at))
        return Child(*_SHIP, "--to", self._to, *each, *options, said=self._said(f"follow-{at}"))

    def _state(self, at: int) -> Path:
        return self._folder / f"state-{at}"

    def _logs(self, pod: int) -> Path:
        return self._settings.config(pod).directory

    def _said(self, name: str) -> Path:
        return self._folder / f"{name}.said"

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Note every two seconds what is accepted and what Kafka has."""
        ending = threading.Event()

        def look() -> None:
            while not ending.wait(_LOOK_S):
                self._note_starts()
                accepted, there = self._book.accepted(), self._cluster.records(self._topic)
                self._curve.append((round(time.monotonic() - self._begun_s, 1), accepted, there))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _note_starts(self) -> None:
        """Note what each shipper has used, once a batch of it is acknowledged: until then it starts."""
        own = ((self._logs(pod), shippers[-1]) for pod, shippers in self._own.items())
        for directory, shipper in (*own, *((self._state(at), shipper) for at, shipper in self._following.items())):
            with contextlib.suppress(OSError):  # no batch yet, or its process ends
                if (directory / ".kafka.offsets").stat().st_mtime > shipper.begun_s:
                    shipper.note_start()

    def _wait_for(self, event: str) -> None:
        time.sleep(max(0.0, self._begun_s + EVENTS[event] * self._settings.seconds - time.monotonic()))
        self._note(event)

    def _note(self, event: str) -> None:
        self._events[event] = round(time.monotonic() - self._begun_s, 1)
        print(f"  {self._events[event]:7.1f} s  {event}", flush=True)

    def _let_things_happen(self) -> None:
        first, *_, last = self._cluster.brokers
        self._wait_for("broker killed")
        first.kill()
        self._wait_for("broker starts again")
        first.start()
        self._wait_for("zone lost")
        last.kill()
        for child in self._of_zone(LOST):
            child.kill()
        self._wait_for("deploy begins")
        seconds = (EVENTS["deploy ends"] - EVENTS["deploy begins"]) * self._settings.seconds
        left = [zone for at, zone in self._zones.items() if at != LOST]
        for zone in left:
            zone.say(f"deploy {seconds}")
        for pod, shippers in self._own.items():
            if pod % ZONES != LOST:
                shippers[-1].kill()
                shippers.append(self._shipper(pod))
        for zone in left:
            assert zone.hear() == "deployed"
        self._note("deploy ends")
        time.sleep(max(0.0, self._begun_s + self._settings.seconds - time.monotonic()))
        for zone in left:
            zone.say("end")
        for zone in left:
            assert zone.hear() == "ended"
            zone.wait_well()
        self._note("pods ended")

    def _of_zone(self, at: int) -> Iterator[Child]:
        yield from (self._zones[at],) if at in self._zones else ()
        yield from (self._following[at],) if at in self._following else ()
        yield from (shippers[-1] for pod, shippers in self._own.items() if pod % ZONES == at)

    def _drain(self) -> None:
        """Let shippers send the rest, and then what the lost zone has left."""
        following = [shipper for at, shipper in self._following.items() if at != LOST]
        own = [shippers[-1] for pod, shippers in self._own.items() if pod % ZONES != LOST]
        for shipper in [*following, *own]:
            shipper.stop()
        for shipper in [*following, *own]:
            shipper.wait_well()
        self._note("shipped")
        if lost := self._pods[LOST]:
            recovering = self._pods_process("recover", "recover", *map(str, lost))
            recovering.read_all()
            recovering.wait_well()
            rest = [self._shipper(pod, "--once") for pod in lost if pod < SAMPLE]
            if LOST in self._following:
                rest.append(self._follow(LOST, "--once"))
            for child in rest:
                child.read_all()
                child.wait_well()
            self._note("lost zone shipped")

    def _found(self) -> dict[str, Any]:
        settings, processes = self._settings, self._book.processes()
        arrived = count(processes, (key(record_of(message)) for message in self._cluster.read(self._topic)))
        verified = subprocess.run(
            [*_SHIP[:-1], "verify", "--json", *map(self._logs, range(settings.pods))],
            check=False, stdout=self._said("verify").open("wb"),
        )  # fmt: skip
        kept = [pod for pod in range(settings.pods) if pod % ZONES != LOST]
        own, others = ([pod for pod in kept if (pod < SAMPLE) is is_own] for is_own in (True, False))
        own_shippers = [child for pod in own for child in self._own[pod]]
        following = [child for at, child in self._following.items() if at != LOST]
        return {
            "pods": settings.pods,
            "processes": len(processes),
            "dropped": sum(note.dropped for note in self._book.notes()),
            "kafka": arrived.figures(),
            "verified": verified.returncode == 0,
            "events": self._events,
            "curve": self._curve,
            "shippers": {
                "records": {"own": self._book.accepted(own), "following": self._book.accepted(others)},
                "cpu_s": {
                    "own": sum(child.work_cpu_s for child in own_shippers),
                    "following": sum(child.work_cpu_s for child in following),
                },
            },
        }


def simulate(folder: Path, fleets: Sequence[int], requests: int, seconds: float, trace: Path) -> dict[str, Any]:
    """Let one fleet after another run, with the same brokers."""
    cluster, runs = Cluster(folder / "kafka"), []
    try:
        for pods in fleets:
            print(f"{pods} pods", flush=True)
            cluster.start()
            own = folder / str(pods)
            runs.append(Run(own, Settings(str(own), pods, requests, seconds, str(trace)), cluster).simulate())
            print(f"  {runs[-1]['kafka']}", flush=True)
            shutil.rmtree(own)
    finally:
        cluster.end()
    about = {"trace": f"{trace.parent.name}/{trace.name}", "trace_s": arrivals.read(trace)[-1].at_s}
    return {**about, "requests": requests, "seconds": seconds, "runs": runs}


def main() -> None:
    """Simulate, keep what was found, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, nargs="+", default=[1, 10, 100, 1000], help="fleets, one after another")
    parser.add_argument("--requests", type=int, default=100, help="of each pod")
    parser.add_argument("--seconds", type=float, default=150.0, help="in which they come")
    parser.add_argument("--trace", type=Path, help="arrivals, see loadtests/README.md")
    parser.add_argument("--out", type=Path, default=Path("build/fleet"), help="folder that is written anew")
    parser.add_argument("--page", action="store_true", help="keep the result, and write its report")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    trace = arrivals.find(options.trace, options.out)
    result = simulate(options.out.resolve(), options.pods, options.requests, options.seconds, trace)
    (options.out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.page:
        command = f"python -m loadtests.fleet.fleet_simulation --pods {' '.join(map(str, options.pods))} --page"
        results.keep(fleet_page.PART, {"command": command, **result}, fleet_page.RESULTS)
        page = fleet_page.updated(fleet_page.PAGE.read_text(encoding="utf-8"), fleet_page.newest())
        fleet_page.PAGE.write_text(page, encoding="utf-8")
    lost = [run["pods"] for run in result["runs"] if run["kafka"]["missing"]]
    print(f"missing in fleets of {lost}" if lost else "nothing is missing", flush=True)
    # librdkafka may wait for ever when it lets go of a client.
    os._exit(1 if lost else 0)


if __name__ == "__main__":
    main()
