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
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as Offsets  # type: ignore[attr-defined]  # public, and not in __all__
from confluent_kafka.cimpl import NewTopic

from loadtests import results
from loadtests.compare import arrivals
from loadtests.fleet import fleet_page
from loadtests.fleet.fleet_pods import SAMPLE, SERVICE, ZONES, Book, Settings, count, key
from loadtests.harness import HOST, Child, free_port
from tests.kit.support import wait_until
from tests.ship.kafka import node
from tests.ship.programs import Program

EVENTS: Final = {
    "broker killed": 0.2, "broker starts again": 0.3, "zone lost": 0.45, "deploy begins": 0.55, "deploy ends": 0.95
}  # fmt: skip
"""When, as a share of the run."""
LOST: Final = 2
"""The zone that is lost."""
PARTITIONS: Final = 12
IN_SYNC: Final = 2
"""Replicas, of one in each zone, that have a record before it is acknowledged."""
_LEAD_S: Final = 2.0
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_OURS: Final = (sys.executable, "-m", "inference_logging.cli.main")
_PODS: Final = (sys.executable, "-m", "loadtests.fleet.fleet_pods")


class Cluster:
    """A real Kafka of three brokers, one for each zone, with a topic for each run."""

    def __init__(self, folder: Path) -> None:
        """Format the storage of all brokers."""
        self._addresses, controllers = ([f"{HOST}:{free_port()}" for _ in range(ZONES)] for _ in range(2))
        self._settings: dict[str, Any] = {"bootstrap.servers": ",".join(self._addresses), "log_level": 0}
        self._ends: dict[str, list[int]] = {}
        self.brokers: list[Program] = []
        for number, address in enumerate(self._addresses, 1):
            own = folder / f"broker-{number}"
            own.mkdir(parents=True)
            # Brokers answer once most of them are there, so that nothing waits for the first one alone.
            self.brokers.append(Program(node(own, address, controllers, number), own / "log", lambda: True))

    def start(self) -> None:
        """Start those that do not run, and wait for all."""
        for broker in self.brokers:
            if not broker.is_running():
                broker.start()
        wait_until(lambda: all(map(self._knows_all, self._addresses)), "the brokers to know each other")

    @staticmethod
    def _knows_all(address: str) -> bool:
        with contextlib.suppress(KafkaException):
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            return len(admin.list_topics(timeout=2.0).brokers) == ZONES
        return False

    def make(self, topic: str) -> str:
        """Make a topic whose records are acknowledged by the brokers of two zones; return where it is."""
        made = NewTopic(topic, PARTITIONS, ZONES, config={"min.insync.replicas": str(IN_SYNC)})
        AdminClient(self._settings).create_topics([made])[topic].result(_PATIENCE_S)
        return f"kafka://{self._settings['bootstrap.servers']}/{topic}"

    def records(self, topic: str) -> int:
        """Return how many records its partitions hold; where a partition has no leader, those that were seen last."""
        # A new client each time: an older one may ask a broker that is dead for as long as it has nothing to send.
        latest = Offsets.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, at): latest for at in range(PARTITIONS)}
        ends = self._ends.setdefault(topic, [0] * PARTITIONS)
        with contextlib.suppress(KafkaException, TimeoutError):
            admin = AdminClient(self._settings)  # which must live until the answers are there
            for partition, future in admin.list_offsets(wanted, request_timeout=2.0).items():
                with contextlib.suppress(KafkaException, TimeoutError):
                    ends[partition.partition] = max(ends[partition.partition], future.result(2.0).offset)
        return sum(ends)

    def read(self, topic: str) -> Iterator[dict[str, Any]]:
        """Return the records of a topic up to its present end."""
        consumer = Consumer({**self._settings, "group.id": "reader", "enable.auto.commit": False})
        partitions = [TopicPartition(topic, at, 0) for at in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(one, timeout=_PATIENCE_S)[1] for one in partitions)
        consumer.assign(partitions)
        while left:
            messages = consumer.consume(min(left, 1000), _PATIENCE_S)
            if not messages:
                raise TimeoutError(f"{topic}: nothing comes, {left} messages are left")
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                yield orjson.loads(message.value() or b"")
            left -= len(messages)
        consumer.close()

    def end(self) -> None:
        """End all brokers."""
        for broker in self.brokers:
            broker.end()


class Shipper(NamedTuple):
    """What ships the volume of one pod (``own``), or those of all other pods of a zone (``following``)."""

    kind: str
    number: int
    zone: int
    state: Path
    """Where it keeps its offsets."""
    options: tuple[str | Path, ...]


class Run:
    """One fleet, from its start to its count."""

    def __init__(self, folder: Path, settings: Settings, cluster: Cluster) -> None:
        """Prepare."""
        self._folder, self._settings, self._cluster = folder, settings, cluster
        folder.mkdir()
        self._topic = f"{SERVICE}-{settings.pods}"
        self._to = cluster.make(self._topic)
        self._pods = [range(zone, settings.pods, ZONES) for zone in range(ZONES)]
        self._book = Book(settings.book, settings.pods)
        self._curve: list[tuple[float, int, int]] = []
        self._events: dict[str, float] = {}
        self._begun_s = 0.0
        self._zones: dict[int, Child] = {}
        self._shippers: dict[Shipper, list[Child]] = {shipper: [] for shipper in self._planned()}

    def _planned(self) -> Iterator[Shipper]:
        for pod in range(min(SAMPLE, self._settings.pods)):
            logs = self._settings.config(pod).directory
            yield Shipper("own", pod, pod % ZONES, logs, ("--directory", logs))
        for zone, pods in enumerate(self._pods):
            if any(pod >= SAMPLE for pod in pods):
                state, each = self._folder / f"state-{zone}", self._folder / f"zone-{zone}" / "{pod}" / "logs"
                yield Shipper("following", zone, zone, state, ("--each", each, "--state", state))

    def simulate(self) -> dict[str, Any]:
        """Let it run, and return what was found."""
        try:
            # All at once: the machine needs a while for a thousand.
            self._zones = {zone: self._process(f"zone-{zone}", *pods) for zone, pods in enumerate(self._pods) if pods}
            for pods in self._zones.values():
                pods.hear("ready")
            for shipper in self._shippers:
                self._ship(shipper)
            self._begun_s = self._book.begin_s = time.monotonic() + _LEAD_S
            with self._looking():
                self._let_things_happen()
                self._drain()
        finally:
            for child in chain(self._zones.values(), *self._shippers.values()):
                child.kill()
        return self._found()

    def _process(self, name: str, *arguments: str | int) -> Child:
        settings = json.dumps(self._settings._asdict())
        return Child(*_PODS, settings, *map(str, arguments), said=self._folder / f"{name}.said")

    def _ship(self, shipper: Shipper, *options: str) -> Child:
        said = self._folder / f"{shipper.kind}-{shipper.number}.said"
        child = Child(*_OURS, "ship", "--to", self._to, *shipper.options, *options, said=said)
        self._shippers[shipper].append(child)
        return child

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
        for shipper, children in self._shippers.items():
            with contextlib.suppress(OSError):  # no batch yet, or its process ends
                if (shipper.state / ".kafka.offsets").stat().st_mtime > children[-1].begun_s:
                    children[-1].note_start()

    def _wait_for(self, event: str) -> None:
        time.sleep(max(0.0, self._begun_s + EVENTS[event] * self._settings.seconds - time.monotonic()))
        self._note(event)

    def _note(self, event: str) -> None:
        self._events[event] = round(time.monotonic() - self._begun_s, 1)
        print(f"  {self._events[event]:7.1f} s  {event}", flush=True)

    def _of_zone(self, *, lost: bool) -> list[Shipper]:
        """Return the shippers of the lost zone, or those of all others."""
        return [shipper for shipper in self._shippers if (shipper.zone == LOST) is lost]

    def _let_things_happen(self) -> None:
        first, *_, last = self._cluster.brokers
        self._wait_for("broker killed")
        first.kill()
        self._wait_for("broker starts again")
        first.start()
        self._wait_for("zone lost")
        last.kill()
        for child in (*(pods for zone, pods in self._zones.items() if zone == LOST), *self._newest(lost=True)):
            child.kill()
        self._wait_for("deploy begins")
        seconds = (EVENTS["deploy ends"] - EVENTS["deploy begins"]) * self._settings.seconds
        left = [pods for zone, pods in self._zones.items() if zone != LOST]
        for pods in left:
            pods.say(f"deploy {seconds}")
        for shipper in self._of_zone(lost=False):
            if shipper.kind == "own":
                self._shippers[shipper][-1].kill()
                self._ship(shipper)
        for pods in left:
            pods.hear("deployed")
        self._note("deploy ends")
        time.sleep(max(0.0, self._begun_s + self._settings.seconds - time.monotonic()))
        for pods in left:
            pods.say("end")
        for pods in left:
            pods.hear("ended")
            pods.end()
        self._note("pods ended")

    def _newest(self, *, lost: bool) -> list[Child]:
        return [self._shippers[shipper][-1] for shipper in self._of_zone(lost=lost)]

    def _drain(self) -> None:
        """Let shippers send the rest, and then what the lost zone has left."""
        kept = self._newest(lost=False)
        for child in kept:
            child.stop()
        for child in kept:
            child.end()
        self._note("shipped")
        if lost := self._pods[LOST]:
            self._process("recover", "recover", *lost).end()
            for child in [self._ship(shipper, "--once") for shipper in self._of_zone(lost=True)]:
                child.end()
            self._note("lost zone shipped")

    def _found(self) -> dict[str, Any]:
        processes, every = self._book.processes(), range(self._settings.pods)
        volumes = [self._settings.config(pod).directory for pod in every]
        with (self._folder / "verify.said").open("wb") as said:
            verified = subprocess.run([*_OURS, "verify", "--json", *volumes], check=False, stdout=said)
        kept = {kind: [pod for pod in every if pod % ZONES != LOST and (pod < SAMPLE) is (kind == "own")]
                for kind in fleet_page.SHIPPERS}  # fmt: skip
        shippers = self._of_zone(lost=False)
        spent = {kind: sum(child.work_cpu_s for shipper in shippers if shipper.kind == kind
                           for child in self._shippers[shipper]) for kind in kept}  # fmt: skip
        return {
            "pods": self._settings.pods,
            "processes": len(processes),
            "dropped": sum(note.dropped for note in self._book.notes()),
            "kafka": count(processes, map(key, self._cluster.read(self._topic))).figures(),
            "verified": verified.returncode == 0,
            "events": self._events,
            "curve": self._curve,
            "shippers": {
                "records": {kind: self._book.accepted(pods) for kind, pods in kept.items()},
                "cpu_s": spent,
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
