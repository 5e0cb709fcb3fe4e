"""`ship --each`: one shipper for the directories of many, such as those of all pods of a node."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inference_logging.errors import OpenError
from inference_logging.segments import segments as listed
from inference_logging.ship import Shipper
from inference_logging.ship.directories import Pattern
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.offsets import State
from inference_logging.ship.sources import LOOK_S, EachSource
from tests.kit.command_line import run
from tests.kit.segment_files import Writer, lines, name, write
from tests.kit.sidecars import Node
from tests.kit.support import wait_until
from tests.ship.bucket import Bucket
from tests.ship.endpoint import Collector
from tests.ship.shipper_parts import EVERYTHING, Destination, Limits, Stop, numbers, ship
from tests.ship.shippers import Ship

PODS = ("chat/pod-0", "chat/pod-1", "tools/pod-0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "segments"


@pytest.fixture
def now() -> Iterator[float]:
    """Each look at the clock is long after the one before."""
    return itertools.count(1.0, 2 * LOOK_S)


def put(root: Path, pod: str, number: int, *numbers: int, **form: Any) -> Path:
    """Write a segment of a pod; names differ from pod to pod, as queues' ids do."""
    (root / pod).mkdir(parents=True, exist_ok=True)
    return write(root / pod / own_name(pod, number), lines(*numbers, **form))


def own_name(pod: str, number: int) -> str:
    return name(number, number, boot_id=f"{abs(hash_of(pod)):016x}")


def hash_of(pod: str) -> int:
    return int.from_bytes(pod.encode()[-8:], "little")


@contextmanager
def opened(root: Path, *, clock: Callable[[], float] = lambda: 0.0, **options: bool) -> Iterator[EachSource]:
    pattern = Pattern.parse(f"{root}/{{namespace}}/{{pod}}")
    found = EachSource(pattern, State(root.parent / "state", "test"), clock=clock, **options)
    try:
        yield found
    finally:
        found.close()


def saved(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root.parent / "state" / ".test.offsets").read_bytes())["directories"]
    return {directory.removeprefix(f"{root}/"): said for directory, said in content.items()}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("logs/{pod}", "must be an absolute path"),
        ("/logs/pods", "must have a {name}"),
        ("/logs/{pod}/{pod}", "must have each name once"),
        ("/logs/../{pod}", "must not have . or .. as a part"),
        ("/logs/a{pod}", "'a{pod}' must be {name}"),
        ("/logs/{}", "'{}' must be {name}"),
    ],
)
def test_a_pattern_that_is_none_says_why(text: str, why: str, tmp_path: Path) -> None:
    done = run("ship", "--each", text, "--state", str(tmp_path), "--to", "otlp+http://127.0.0.1:1")
    assert done.code == 2
    assert f"Invalid value for '--each': {text!r} {why}" in " ".join(done.err.replace("│", "").split())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--each", "/logs/{pod}"), "give --each and --state together"),
        (("--state", "/state"), "give --each and --state together"),
        (("--each", "/logs/{pod}", "--state", "/state", "--directory", "/logs"), "exclude each other"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Sequence[str], why: str) -> None:
    done = run("ship", *options, "--to", "otlp+http://127.0.0.1:1")
    assert (done.code, why in done.err) == (2, True), done


def test_no_link_is_followed_below_the_fixed_part(root: Path, tmp_path: Path) -> None:
    (root / "chat" / "pod-0").mkdir(parents=True)
    (tmp_path / "elsewhere" / "pod-1").mkdir(parents=True)
    (root / "tools").symlink_to(tmp_path / "elsewhere")
    (root / "chat" / "pod-2").symlink_to(tmp_path / "elsewhere" / "pod-1")
    (root / "chat" / "file").write_text("no directory")
    assert Pattern.parse(f"{root}/{{namespace}}/{{pod}}").find() == [root / "chat" / "pod-0"]
    assert Pattern.parse(f"{root}/chat/{{pod}}").find() == [root / "chat" / "pod-0"]
    assert Pattern.parse(f"{root}/chat/{{pod}}/audit").find() == []


def test_one_batch_has_the_records_of_all_and_is_saved_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, 10 * number, 10 * number + 1)
    replaced: list[object] = []
    with opened(root) as found:
        monkeypatch.setattr(found._state._file, "replace", replaced.append)
        batch = found.read(*EVERYTHING)
        assert sorted(numbers(batch)) == [0, 1, 10, 11, 20, 21]
        found.plan(batch)
        assert replaced == [], "only where a destination asks for it"
        found.acknowledge(batch)
        assert len(replaced) == 1
        assert found.lag_bytes() == 0


def test_the_next_shipper_goes_on_in_each_directory_and_nothing_is_written_there(root: Path) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, 100 * number, 100 * number + 1)
    live = Writer(root / PODS[0] / own_name(PODS[0], 2))
    live.append(lines(7, footer=False))()
    before = sorted(root.rglob("*"))
    with opened(root) as found:
        batch = found.read(3, 1 << 40)
        found.acknowledge(batch)
        arrived = numbers(batch)
    with opened(root) as found:
        arrived += ship(found)
    live.append(lines(8, header=False))()
    live.die()
    put(root, PODS[2], 2, 9)
    with opened(root) as found:
        arrived += ship(found, 1)
    with opened(root) as found:
        assert ship(found) == []
    assert sorted(arrived) == [0, 1, 7, 8, 9, 100, 101, 200, 201]
    assert sorted(root.rglob("*")) == sorted([*before, root / PODS[2] / own_name(PODS[2], 2)])


def test_a_busy_directory_does_not_hold_up_the_others(root: Path) -> None:
    put(root, PODS[0], 1, *range(1000, 2000))
    for number, pod in enumerate(PODS[1:]):
        put(root, pod, 1, number)
    with opened(root) as found:
        early = []
        for _ in PODS:
            batch = found.read(10, 1 << 40)
            found.acknowledge(batch)
            early += numbers(batch)
        assert {0, 1} < set(early)
        assert sorted([*early, *ship(found, 10)]) == [0, 1, *range(1000, 2000)]


def test_directories_are_found_as_they_come_and_forgotten_once_they_are_gone(root: Path, now: Iterator[float]) -> None:
    put(root, PODS[0], 1, 1)
    with opened(root, clock=lambda: next(now)) as found:
        assert ship(found) == [1]
        put(root, PODS[1], 1, 2)
        live = Writer(root / PODS[1] / own_name(PODS[1], 2))
        live.append(lines(3, footer=False))()
        assert ship(found) == [2, 3]
        live.append(lines(4, header=False))()
        live.die()
        shutil.rmtree(root / PODS[1])
        assert ship(found) == [4], "it was open"
        put(root, PODS[0], 2, 5)
        assert ship(found) == [5]
        assert list(saved(root)) == [PODS[0]]
        assert len(found._sources) == 1
    with opened(root) as found:
        assert ship(found) == []


def test_where_nothing_new_comes_a_new_directory_is_found_at_once_else_after_a_second(root: Path) -> None:
    put(root, PODS[0], 1, 1, 2)
    now = 0.0
    with opened(root, clock=lambda: now) as found:
        put(root, PODS[1], 1, 3)
        assert numbers(found.read(1, 1 << 40)) == [1]
        now = LOOK_S
        assert sorted(numbers(found.read(*EVERYTHING))) in ([1, 2, 3], [2, 3])
    with opened(root, clock=lambda: now) as found:
        assert sorted(ship(found)) == [1, 2, 3]
        put(root, PODS[2], 1, 4)
        assert ship(found) == [4]


def test_what_is_finished_is_forgotten_with_its_segment(root: Path) -> None:
    first, second = put(root, PODS[0], 1, 1), put(root, PODS[0], 2, 2)
    with opened(root) as found:
        assert ship(found) == [1, 2]
        assert saved(root)[PODS[0]]["done"] == [first.name, second.name]
        first.unlink()
        put(root, PODS[0], 3, 3)
        assert ship(found) == [3]
        assert first.name not in saved(root)[PODS[0]]["done"]


def test_a_scrape_whose_list_is_older_than_a_mark_does_not_forget_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, PODS[0], 1, 1)
    before = listed(root / PODS[0])
    with opened(root) as found:
        put(root, PODS[0], 2, 2)
        assert ship(found) == [1, 2]
        with monkeypatch.context() as scrape:
            scrape.setattr("inference_logging.ship.source.segments", lambda _: before)
            found.lag_bytes()
        assert ship(found) == []


def test_the_audit_lane_of_each_goes_along(root: Path) -> None:
    put(root, PODS[0], 1, 1)
    audit = root / PODS[0] / "audit"
    audit.mkdir()
    write(audit / name(1, prefix="svc-audit"), lines(2))
    with opened(root) as found:
        batch = found.read(*EVERYTHING)
        assert {(line.service_name, line.record["n"]) for line in batch.lines} == {("svc", 1), ("svc", 2)}


def test_a_directory_that_cannot_be_read_is_reported_and_the_others_go_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, number)

    def refusing(directory: Path) -> Any:
        if directory == root / PODS[1]:
            raise PermissionError(13, "Permission denied", str(directory))
        return listed(directory)

    monkeypatch.setattr("inference_logging.ship.source.segments", refusing)
    destination, reported = Destination(), list[str]()
    with opened(root) as found:
        shipper = Shipper(found, destination, Limits(), report=reported.append)
        assert not shipper.run(Stop(), once=True), "not all of it has arrived"
    assert sorted(destination.got) == [0, 2]
    assert any(PODS[1] in text and "cannot be read" in text for text in reported)
    assert shipper.errors["read"] >= 1


def test_a_record_of_one_pod_that_cannot_be_shipped_does_not_hold_up_the_others(root: Path) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, number, 10 + number)
    destination = Destination(poisons={1, 11, 12})
    with opened(root) as found:
        shipper = Shipper(found, destination, Limits(ship_batch_records=9), report=lambda _: None)
        assert shipper.run(Stop(), once=True)
    assert sorted(destination.got) == [0, 2, 10]
    letters = (root.parent / "state" / ".test.dead-letters").read_bytes().splitlines()
    found_letters = [(json.loads(one)["directory"], json.loads(one)["segment"]) for one in letters]
    of = {pod: (str(root / pod), own_name(pod, 1)) for pod in PODS}
    assert sorted(found_letters) == sorted([of[PODS[1]]] * 2 + [of[PODS[2]]])


def test_what_was_planned_in_several_directories_is_read_again_as_it_was_by_the_next_shipper(root: Path) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, 10 * number, 10 * number + 1)
    with opened(root, repeats=True) as found:
        found.acknowledge(found.read(1, 1))
        planned = found.read(4, 1 << 40)
        found.plan(planned)
    assert len({line.segment for line in planned.lines}) > 1
    put(root, PODS[0], 2, 99)
    for turns in range(len(PODS)):
        with opened(root, repeats=True) as found:
            found._next = turns
            assert [line.place for line in found.read(1, 1).lines] == [line.place for line in planned.lines]
    with opened(root, repeats=True) as found:
        found.acknowledge(found.read(1, 1))
        assert len(ship(found)) == 2


def test_a_directory_without_its_plan_does_not_hold_up_the_others(root: Path) -> None:
    for number, pod in enumerate(PODS[:2]):
        put(root, pod, 1, number)
    with opened(root, repeats=True) as found:
        found.plan(found.read(*EVERYTHING))
    for pod in PODS[:2]:
        shutil.rmtree(root / pod)
    put(root, PODS[2], 1, 2)
    with opened(root, repeats=True) as found:
        assert ship(found) == [2]


def test_a_state_is_of_one_shipper_at_a_time_and_one_that_cannot_be_read_is_refused(root: Path) -> None:
    put(root, PODS[0], 1, 1)
    with opened(root) as found:
        ship(found)
        with pytest.raises(OpenError, match="ship_name='test': another shipper of this name runs"), opened(root):
            pass
    (root.parent / "state" / ".test.offsets").write_text('{"version": 1, "segments": {}}')
    with pytest.raises(OpenError, match=r"\.test\.offsets: cannot be read"), opened(root):
        pass


def test_a_copy_of_what_was_sent_is_what_a_death_between_sending_and_saving_leaves(root: Path) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, number)
    got: list[Line] = []

    def take(sent: Sequence[Line]) -> Sent:
        got.extend(sent)
        return Sent()

    with opened(root) as found:
        take(found.read(*EVERYTHING).lines)
    with opened(root) as found:
        batch = found.read(*EVERYTHING)
        take(batch.lines)
        found.acknowledge(batch)
        assert ship(found) == []
    assert sorted(line.record["n"] for line in got) == [0, 0, 1, 1, 2, 2]


@pytest.mark.servers
def test_object_storage_gets_the_sealed_segments_of_each(root: Path, bucket: Bucket, tmp_path: Path) -> None:
    for number, pod in enumerate(PODS):
        put(root, pod, 1, number, resource={"k8s.pod.name": pod.replace("/", "-")})
    ask = ("ship", "--each", f"{root}/{{namespace}}/{{pod}}", "--state", str(tmp_path / "state"), "--to", bucket.url)
    before = sorted(root.rglob("*"))
    done = run(*ask, "--once")
    assert (done.code, "lag_bytes=0" in done.err) == (0, True), done
    keys = [key for key in bucket.named() if "/_manifest/" not in key]
    assert sorted(key.partition("/pod=")[2].partition("/")[0] for key in keys) == [
        pod.replace("/", "-") for pod in PODS
    ]
    asked = len(bucket.asked)
    assert run(*ask, "--once").code == 0
    assert not [line for line in bucket.asked[asked:] if not line.startswith(("GET", "HEAD"))], "nothing is sent again"
    assert sorted(root.rglob("*")) == before


@pytest.mark.servers
@pytest.mark.kills
def test_each_record_of_all_pods_arrives_though_pods_listener_and_shipper_are_killed(
    listener_binary: Path, collector: Collector, tmp_path: Path
) -> None:
    machine = tmp_path / "node"
    machine.mkdir()
    node = Node(machine, listener_binary)
    pods = [f"chat/pod-{number}" for number in range(8)]
    pattern = f"{node.segments}/{{k8s.namespace.name}}/{{k8s.pod.name}}"
    each = ("--each", pattern, "--state", str(tmp_path / "state"))
    shipper = Ship(node.config, collector.url, each=each, ship_batch_records=20)
    shipper.start()
    listener = node.listen(rotate_bytes=65536)
    try:
        for step in range(4):
            for pod in pods[step % 2 :: 2]:
                node.produce(pod, range(step * 100, step * 100 + 50))
            # Counted from its start: by now it may have shipped all that there was.
            wait_until(lambda: shipper.metric("records_total") >= 20, "20 records to be acknowledged")
            shipper.kill()
            if step % 2:
                listener.kill()
                listener = node.listen(rotate_bytes=65536)
            shipper.start()
        for pod in pods:
            wait_until(lambda pod=pod: len(node.numbers(pod)) == 100, f"the records of {pod}")  # type: ignore[misc]
        wait_until(lambda: len(arrived(collector)) == 100 * len(pods), "all to arrive")
        listener.kill()
        assert shipper.stop() == 0, shipper.lines
    finally:
        shipper.end()
        listener.kill()
    assert arrived(collector) == {(pod, n) for pod in pods for n in node.numbers(pod)}


def arrived(collector: Collector) -> set[tuple[str, int]]:
    """Return pod and number of each record, without what listeners say of queues that were taken over."""
    found = [(one["resource"], one["attributes"]["n"]) for one in collector.records() if one["event_name"] == "log"]
    return {(f"{of['k8s.namespace.name']}/{of['k8s.pod.name']}", number) for of, number in found}
