"""`listen --each`: one process that listens in the queue directories of many, each with a user of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from inference_logging import Logger, get_logger
from tests.kit.child import in_child
from tests.kit.sidecars import Node, Sidecar, served_port
from tests.kit.support import read_lines, read_records, wait_until

pytestmark = pytest.mark.servers

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as several users")
USERS = (12_001, 12_002, 12_003)


def wait_for(sidecar: Sidecar, line: str) -> None:
    """Wait until the pattern ``line`` is found in a line of the listener, also one that it has said before."""

    def found() -> bool:
        assert sidecar.process.poll() is None, f"the listener ended: {sidecar.lines}"
        return any(re.search(line, said) for said in list(sidecar.lines))

    wait_until(found, f"{line!r} of the listener")


@pytest.fixture
def node(listener_binary: Path) -> Iterator[Node]:
    """Return a machine whose directories every user may pass through."""
    root = Path(tempfile.mkdtemp(prefix="node-"))
    root.chmod(0o755)
    try:
        yield Node(root, listener_binary)
    finally:
        shutil.rmtree(root)


@pytest.fixture
def users() -> tuple[int | None, ...]:
    """Return three users of pods: their own, where that is possible."""
    return USERS if os.geteuid() == 0 else (None, None, None)


def test_pods_are_found_as_they_come_and_each_record_is_written_once_whichever_process_is_killed(
    node: Node, users: tuple[int | None, ...]
) -> None:
    pods = dict(zip(("chat/a", "chat/b", "tools/a"), users, strict=True))
    node.produce("chat/a", range(50), users[0])  # nobody listens yet
    sidecar = node.listen()
    for life in range(3):
        for pod, user in pods.items():
            node.produce(pod, range(100 * life + 50, 100 * life + 150), user)
        sidecar.kill()
        node.produce("chat/b", range(1_000 + life, 1_001 + life), users[1])
        sidecar = node.listen()
    expected = {"chat/a": [*range(350)], "chat/b": [*range(50, 350), 1_000, 1_001, 1_002], "tools/a": [*range(50, 350)]}
    with sidecar:
        for pod, numbers in expected.items():
            node.wait_for(pod, numbers)
        assert sidecar.stop() == 0
    assert {pod: node.numbers(pod) for pod in pods} == expected, "each once"
    assert "left=0" in sidecar.lines[-1]


def test_a_pod_that_has_ended_is_drained_and_forgotten_and_may_come_again(
    node: Node, users: tuple[int | None, ...]
) -> None:
    with node.listen("--forget-after-s", "0") as sidecar:
        node.produce("chat/a", range(10), users[0])
        wait_for(sidecar, "chat/a is forgotten: queues=0 in_queue=0 written=10")
        queues = node.queues / "chat" / "a" / "queues"
        assert not queues.exists()
        assert queues.parent.is_dir(), "the pod has it mounted, and may start a process again"
        node.produce("chat/a", range(10, 20), users[0])
        wait_until(lambda: node.numbers("chat/a") == [*range(20)], "the records of the second life")
        wait_until(lambda: not queues.exists(), "the directory to be forgotten again")
        sidecar.wait_for("directories=0 refused=0")
        assert sidecar.stop() == 0


def test_a_pod_whose_process_runs_is_not_forgotten(node: Node) -> None:
    node.pod("chat/a")
    node.pod("chat/b")
    with Logger(node.configuration("chat/a")) as logger, node.listen("--forget-after-s", "0") as sidecar:
        assert get_logger("pod").warning("n", n=1)
        assert logger.flush(60)
        node.produce("chat/b", range(1))
        wait_for(sidecar, "chat/b is forgotten")
        assert get_logger("pod").warning("n", n=2)
        assert logger.flush(60)
        assert node.numbers("chat/a") == [1, 2]
        assert (node.queues / "chat" / "a" / "queues").is_dir()
        assert logger.service.listener_stats()["queue_renewals"] == 0
    assert not [line for line in sidecar.lines if "chat/a is" in line], "it was served all the time"


def test_service_and_redaction_are_those_of_the_pod_and_its_names_are_in_the_resource(node: Node) -> None:
    redacted = {"service_name": "search", "redact_fields": ("secret",)}
    node.pod("tools/a")

    def child() -> None:
        Logger(node.configuration("tools/a", **redacted))
        assert get_logger("pod").warning("n", n=1, secret="plain", other="shown")

    assert os.waitpid(in_child(child), 0)[1] == 0
    node.produce("chat/b", range(1))
    with node.listen() as sidecar:
        wait_until(lambda: node.records("tools/a") and node.records("chat/b"), "the records of both")
        assert sidecar.stop() == 0
    (record,) = node.records("tools/a")
    assert (record["attributes"]["other"], "plain" in json.dumps(record)) == ("shown", False)
    header = read_lines(node.segments / "tools" / "a")[0]
    assert header["resource"]["service.name"] == "search"
    assert header["resource"]["k8s.namespace.name"] == "tools"
    assert header["resource"]["k8s.pod.name"] == "a"
    assert [path.name.split("-")[0] for path in sorted((node.segments / "chat" / "b").glob("*.jsonl"))] == ["inference"]
    assert all(path.name.startswith("search-") for path in (node.segments / "tools" / "a").glob("*.jsonl"))


def test_a_pod_that_is_served_once_the_reason_is_gone_counts_as_refused_no_more(node: Node) -> None:
    place = node.segments / "chat" / "a"
    place.parent.mkdir(parents=True)
    place.touch()
    node.produce("chat/a", range(5))
    with node.listen() as sidecar:
        sidecar.wait_for("directories=0 refused=1")
        assert f"chat/a is not served: {place}: is no directory" in "\n".join(sidecar.lines)
        place.unlink()
        node.wait_for("chat/a", range(5))
        sidecar.wait_for("directories=1 refused=0")
        assert sidecar.stop() == 0


def test_a_pod_that_expects_another_listener_is_refused_and_named_and_the_others_are_served(node: Node) -> None:
    node.produce("chat/elsewhere", range(5), directory="/somewhere/else")
    node.produce("chat/stdout", range(5), sink="stdout")
    node.produce("chat/good", range(5))
    with node.listen("--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        wait_until(lambda: node.numbers("chat/good") == [*range(5)], "the records of the other pod")
        sidecar.wait_for("directories=1 refused=2")
        said = "\n".join(sidecar.lines)
        expected = f'directory is "/somewhere/else" there and "{node.segments}" here'
        assert f"chat/elsewhere is not served: another configuration: {expected}" in said
        assert 'chat/stdout is not served: another configuration: sink is "stdout" there and "file" here' in said
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'inference_logging_directories{state="refused"} 2.0' in metrics
        assert sidecar.stop() == 0
    assert said.count("chat/stdout is not served") == 1, "it is tried again, and not said again"
    # Nothing of theirs is gone.
    for pod in ("chat/elsewhere", "chat/stdout"):
        assert len(list((node.queues / pod / "queues").glob("*.queue"))) == 1


def test_each_pod_has_the_quota_for_itself(node: Node, users: tuple[int | None, ...]) -> None:
    quota_bytes = 2 << 20

    def removed(pod: str) -> set[str]:
        records = read_records(node.segments / pod, "segments.removed")
        return {record["reason"] for record in records}

    def size(pod: str) -> int:
        return sum(path.stat().st_size for path in (node.segments / pod).glob("*.jsonl"))

    with node.listen(quota_bytes=quota_bytes, rotate_bytes=1 << 18) as sidecar:
        node.produce("chat/small", range(5_000), users[1])
        node.produce("chat/large", range(30_000), users[0])
        sidecar.wait_for("in_queue=0 written=35")

        def is_kept() -> bool:
            with contextlib.suppress(FileNotFoundError):  # segments go as they are read
                return bool(removed("chat/large")) and size("chat/large") <= quota_bytes
            return False

        wait_until(is_kept, "the quota to be kept, and a report of it")
        assert sidecar.stop() == 0
    assert removed("chat/large") == {"quota"}
    assert size("chat/small") > quota_bytes / 4, "each would have less of a quota that both shared"
    assert node.numbers("chat/small") == [*range(5_000)]
    assert removed("chat/small") == set()


def test_segments_of_pods_that_are_gone_have_a_limit_together(node: Node, users: tuple[int | None, ...]) -> None:
    for pod, user in zip(("chat/a", "chat/b"), users, strict=False):
        node.produce(pod, range(1_000), user)
        with node.listen("--forget-after-s", "0") as sidecar:
            wait_for(sidecar, f"{pod} is forgotten")
            assert sidecar.stop() == 0
    sizes = [sum(path.stat().st_size for path in (node.segments / pod).glob("*.jsonl")) for pod in ("chat/a", "chat/b")]
    with node.listen("--ended-bytes", str(sizes[1] + 1_000)) as sidecar:
        wait_for(sidecar, r"1 segments of [0-9]+ bytes removed from .*/chat/a, which is not served: quota")
        assert sidecar.stop() == 0
    assert node.numbers("chat/a") == []
    assert node.numbers("chat/b") == [*range(1_000)]


def test_metrics_and_health_are_of_all_and_name_each(node: Node, users: tuple[int | None, ...]) -> None:
    node.produce("chat/a", range(7), users[0])
    node.produce("chat/b", range(9), users[1])
    with node.listen("--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        at = f"http://127.0.0.1:{port}"
        sidecar.wait_for("directories=2 refused=0 .* in_queue=0 written=16")
        text = httpx.get(f"{at}/metrics").text
        accepted = re.findall(
            r'^inference_logging_records_accepted_total\{directory="(.+?)"\} (.+)$', text, re.MULTILINE
        )
        assert dict(accepted) == {"chat/a": "7.0", "chat/b": "9.0"}
        assert 'inference_logging_directories{state="served"} 2.0' in text
        families = Counter(re.findall("^# TYPE ([a-z_]+)", text, re.MULTILINE))
        assert set(families.values()) == {1}, families.most_common(3)
        for path in ("health", "live"):
            answer = httpx.get(f"{at}/{path}")
            assert (answer.status_code, answer.json()) == (200, {"status": "ok", "directories": 2, "failing": {}})
        assert httpx.get(f"{at}/elsewhere").status_code == 404
        assert httpx.post(f"{at}/metrics").status_code == 405
        assert sidecar.stop() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--each", "queues/{pod}"), "'queues/{pod}' must be an absolute path"),
        (("--each", "/queues"), "must have a {name}"),
        (("--each", "/queues/{pod}", "--forget-after-s", "-1"), "--forget-after-s"),
    ],
)
def test_a_wrong_pattern_is_refused(node: Node, options: tuple[str, ...], said: str) -> None:
    sidecar = Sidecar(node.config, *options, listen=(str(node.program), "listen"))
    assert sidecar.ended() == 2
    assert said.replace('"', "'") in sidecar.lines[0].replace('"', "'")


def test_the_command_of_the_package_does_the_same(node: Node) -> None:
    node.produce("chat/a", range(3))
    made = node.root / "made"
    options = ("--forget-after-s", "0", "--ended-bytes", "1000000", "--make", str(made))
    with Sidecar(node.config, "--each", f"{node.queues}/{{namespace}}/{{pod}}/queues", *options) as sidecar:
        wait_for(sidecar, "chat/a is forgotten: queues=0 in_queue=0 written=3")
        assert made.is_dir()
        assert sidecar.stop() == 0
    assert node.numbers("chat/a") == [0, 1, 2]


def test_a_directory_for_pods_is_made_for_everybody_to_write_to(node: Node) -> None:
    made = node.root / "made" / "chat"
    with node.listen("--make", str(made)) as sidecar:
        sidecar.wait_for("directories=0")
        assert made.stat().st_mode & 0o7777 == 0o1777
        assert sidecar.stop() == 0


@as_root
def test_segments_belong_to_the_user_of_the_pod_and_only_that_user_reads_them(node: Node) -> None:
    for pod, user in zip(("chat/a", "chat/b"), USERS, strict=False):
        node.produce(pod, range(3), user)
    with node.listen() as sidecar:
        for pod in ("chat/a", "chat/b"):
            node.wait_for(pod, [0, 1, 2])
        assert sidecar.stop() == 0
    for pod, user in zip(("chat/a", "chat/b"), USERS, strict=False):
        directory = node.segments / pod
        assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (user, 0o750)
        assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in directory.glob("*.jsonl")} == {
            (user, 0o600)
        }
    assert node.segments.stat().st_uid == (node.segments / "chat").stat().st_uid == 0


@as_root
@pytest.mark.parametrize("what", ["link", "directory"])
def test_a_pod_cannot_have_the_queues_of_another_user_read_as_its_own(node: Node, what: str) -> None:
    victim, thief = USERS[:2]
    node.produce("chat/victim", range(3), victim)
    node.pod("chat/thief")
    queues = node.queues / "chat" / "thief" / "queues"
    taken = node.queues / "chat" / "victim" / "queues"
    if what == "link":
        queues.symlink_to(taken)
        os.lchown(queues, thief, thief)
    else:
        # All that it can make itself: a directory whose files are links.
        queues.mkdir(mode=0o700)
        for path in taken.iterdir():
            (queues / path.name).symlink_to(path)
        os.chown(queues, thief, thief)
    with node.listen() as sidecar:
        wait_until(lambda: node.numbers("chat/victim") == [0, 1, 2], "the records of the other pod")
        if what == "directory":
            sidecar.wait_for("directories=1 refused=1")
        assert sidecar.stop() == 0
    assert node.numbers("chat/victim") == [0, 1, 2]
    assert not list((node.segments / "chat" / "thief").glob("*.jsonl"))


@as_root
def test_a_process_that_is_not_root_serves_its_own_directories_and_names_the_others(
    node: Node, listener_binary: Path
) -> None:
    node.produce("chat/own", range(3), USERS[0])
    node.produce("chat/other", range(3), USERS[1])
    node.segments.mkdir()
    os.chown(node.segments, USERS[0], USERS[0])
    program = node.root / "listener"
    shutil.copy(listener_binary, program)
    node.program = program

    def demoted(*options: str) -> Sidecar:
        pattern = f"{node.queues}/{{namespace}}/{{pod}}/queues"
        before = ("setpriv", f"--reuid={USERS[0]}", f"--regid={USERS[0]}", "--clear-groups")
        return Sidecar(node.config, "--each", pattern, *options, before=before, listen=(str(program), "listen"))

    with demoted() as sidecar:
        wait_until(lambda: node.numbers("chat/own") == [0, 1, 2], "the records of its own pod")
        sidecar.wait_for("directories=1 refused=1")
        why = f"chat/other is not served: it belongs to user {USERS[1]}, and this process is not root"
        assert why in "\n".join(sidecar.lines)
        assert sidecar.stop() == 0


@as_root
def test_three_capabilities_are_enough_to_serve_the_pods_of_all_users_and_to_forget_them(node: Node) -> None:
    options = ("--forget-after-s", "0", "--make", str(node.queues / "chat"))
    pattern = f"{node.queues}/{{k8s.namespace.name}}/{{k8s.pod.name}}/queues"
    before = ("setpriv", "--no-new-privs", "--bounding-set=-all,+setuid,+setgid,+chown")
    with Sidecar(node.config, "--each", pattern, *options, before=before, listen=(str(node.program), "listen")) as one:
        one.wait_for("directories=0")
        for life, user in enumerate(USERS):
            # A pod of the same name may be another user's: that of a StatefulSet that was changed.
            node.produce("chat/a", range(10 * life, 10 * life + 10), user)
            wait_until(lambda: not (node.queues / "chat" / "a" / "queues").exists(), "the pod to be forgotten")
        assert one.stop() == 0
    assert node.numbers("chat/a") == [*range(30)]
    assert (node.segments / "chat" / "a").stat().st_uid == USERS[-1]
