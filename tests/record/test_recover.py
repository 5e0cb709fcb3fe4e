"""`recover`: what dead processes left in their queues is written once and reported; with Python and without."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from tests.kit.child import in_child, killed_while, numbers, produce, serve_hanging
from tests.kit.command_line import run
from tests.kit.sidecars import Sidecar, environment, queue_files
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("program")]

ROOT = Path(__file__).parents[2]
VERSION_OFFSET = 8
HEAD_OFFSET = 128
"""Of the ring's head word in a queue file: sequence (32 bits), closed (1), position (31)."""


@pytest.fixture
def config(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the configuration of servers without a listener, which is that of the command as well."""
    config = configure(listener="external", drain_deadline_s=60)
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(config.directory))
    monkeypatch.setenv("INFERENCE_LOGGING_DRAIN_DEADLINE_S", "60")
    return config


def recover(config: Config) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what was reported."""
    done = run("recover", str(config.resolved_queue_directory), "--json")
    assert all(line.startswith("inference_logging: the sink ") for line in done.err.splitlines())
    return done.code, json.loads(done.out)


def test_what_killed_processes_left_is_written_once_and_reported_of_each(config: Config) -> None:
    for process in range(3):
        produce(config, process * 100, 100)
    code, reported = recover(config)
    assert (code, reported["recovered"], reported["unreadable"]) == (0, 300, [])
    assert numbers(config) == list(range(300))
    pids = {record["boot_id"]: record["pid"] for record in read_records(config.directory, "log")}
    assert {process["boot_id"]: process["pid"] for process in reported["processes"]} == pids
    rest = {"state": "ended", "accepted": 100, "recovered": 100, "torn": 0, "corrupt": 0, "left": 0}
    assert [{name: process[name] for name in rest} for process in reported["processes"]] == [rest] * 3
    assert queue_files(config) == []

    done = run("recover", str(config.resolved_queue_directory))
    assert (done.code, done.out) == (0, f"recovered=0 processes=0 from {config.resolved_queue_directory}\n")
    assert numbers(config) == list(range(300))


def test_without_a_directory_it_is_the_configured_one(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    produce(config, 0, 100)
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(config.resolved_queue_directory))
    done = run("recover")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        f"recovered=100 processes=1 from {config.resolved_queue_directory}",
    )
    assert numbers(config) == list(range(100))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(tmp_path / "none"))
    none = run("recover")
    assert (none.code, none.out, str(tmp_path / "none") in none.err) == (2, "", True)


def test_verify_reports_the_requests_of_killed_processes_until_they_are_recovered(config: Config) -> None:
    killed_while(config, lambda reached: serve_hanging(config, reached, ("/a", b"{}", 0), ("/b", b"{}", 1)))
    queues = ("--queue-directory", str(config.resolved_queue_directory))
    before = run("verify", str(config.resolved_queue_directory), *queues)
    assert "2 requests in flight of processes that have ended wait for a listener" in before.out
    assert "inference-logging recover" in before.out
    assert run("recover", str(config.resolved_queue_directory)).code == 0
    after = run("verify", str(config.directory), *queues)
    assert (after.code, "in flight" in after.out) == (0, False)
    assert len(read_records(config.directory, "request")) == 2


def test_a_record_that_a_process_had_only_begun_is_counted_and_not_written(config: Config) -> None:
    produce(config, 0, 10)
    (queue,) = queue_files(config)
    with queue.open("r+b") as file:
        file.seek(HEAD_OFFSET)
        (head,) = struct.unpack("<Q", file.read(8))
        file.seek(HEAD_OFFSET)
        # One reservation more, of four words that stay untouched.
        file.write(struct.pack("<Q", head + (1 << 32) + 4))
    done = run("recover", str(config.resolved_queue_directory))
    assert (done.code, numbers(config)) == (0, list(range(10)))
    header, row, summary = done.out.splitlines()
    assert header.split() == ["lane", "boot_id", "pid", "state", "accepted", "recovered", "torn", "corrupt", "left"]
    assert row.split()[3:] == ["ended", "11", "10", "1", "0", "0"]
    assert summary.startswith("recovered=10 processes=1 from ")
    assert [record["dropped"] for record in read_records(config.directory, "log.dropped")] == [1]


def test_the_queue_of_a_server_that_runs_is_written_as_far_as_it_is_and_stays(config: Config) -> None:
    produce(config, 0, 50)
    begun, report = os.pipe()
    go_on, end = os.pipe()

    def server() -> None:
        os.close(end)
        with Logger(config):
            assert all(get_logger("t").warning("n", n=50 + n) for n in range(50))
            os.write(report, b"x")
            os.read(go_on, 1)

    pid = in_child(server)
    os.close(go_on)
    assert os.read(begun, 1) == b"x"
    code, reported = recover(config)
    assert (code, numbers(config)) == (0, list(range(100)))
    assert {process["pid"]: process["state"] for process in reported["processes"]}[pid] == "alive"
    assert len(queue_files(config)) == 1
    os.close(end)
    assert os.waitpid(pid, 0)[1] == 0


def test_all_that_waited_in_the_queue_of_a_server_that_runs_is_written(config: Config) -> None:
    # More than a listener writes at once, and no listener but that of the command.
    large = config.model_copy(update={"queue_bytes": 16 << 20})
    begun, report = os.pipe()
    go_on, end = os.pipe()

    def server() -> None:
        os.close(end)
        with Logger(large):
            assert all(get_logger("t").warning("n", n=n, text="x" * 1000) for n in range(4000))
            os.write(report, b"x")
            os.read(go_on, 1)

    pid = in_child(server)
    os.close(go_on)
    os.close(report)
    assert os.read(begun, 1) == b"x"
    code, found = recover(config)
    assert (code, numbers(config)) == (0, list(range(4000)))
    assert [(process["recovered"], process["left"]) for process in found["processes"]] == [(4000, 0)]
    os.close(end)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_audit_lane_is_recovered_too_where_it_is_on(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    audited = config.model_copy(update={"audit": "on"})

    def child() -> None:
        logger = Logger(audited)
        emit = logger.event("charged", ["n"], lane="audit")
        assert all(emit(n) for n in range(100))
        assert get_logger("t").warning("n", n=0)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)
    code, reported = recover(config)
    assert (code, numbers(config)) == (1, [0])
    assert [(process["lane"], process["recovered"], process["left"]) for process in reported["processes"]] == [
        ("fast", 1, 0),
        ("audit", 0, 100),
    ]
    monkeypatch.setenv("INFERENCE_LOGGING_AUDIT", "on")
    code, reported = recover(config)
    assert (code, reported["recovered"]) == (0, 100)
    assert [record["n"] for record in read_records(audited.resolved_audit_directory, "charged")] == list(range(100))


def test_where_a_listener_is_at_work_that_one_writes(config: Config) -> None:
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader")
        for process in range(3):
            produce(config, process * 100, 100)
        assert recover(config)[0] == 0
        assert numbers(config) == list(range(300))
        assert sidecar.stop() == 0
    assert len({path.name for path in config.directory.glob("*.jsonl")}) == 1


def test_what_cannot_be_written_is_exit_code_1_and_can_be_tried_again(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(config, 0, 100)
    with monkeypatch.context() as changed:
        changed.setenv("INFERENCE_LOGGING_SINK", f"unix://{tmp_path}/nobody")
        changed.setenv("INFERENCE_LOGGING_DRAIN_DEADLINE_S", "0.1")
        code, reported = recover(config)
        assert (code, reported["recovered"], [process["left"] for process in reported["processes"]]) == (1, 0, [100])
    config.directory.write_bytes(b"in the way")
    assert run("recover", str(config.resolved_queue_directory)).code == 1
    config.directory.unlink()
    code, reported = recover(config)
    assert (code, reported["recovered"], numbers(config)) == (0, 100, list(range(100)))


def test_a_file_that_is_no_queue_is_named_and_left_alone(config: Config) -> None:
    produce(config, 0, 10)
    foreign = config.resolved_queue_directory / "foreign.queue"
    foreign.write_bytes(b"noise" * 50_000)
    code, reported = recover(config)
    assert (code, numbers(config)) == (1, list(range(10)))
    assert [entry["file"] for entry in reported["unreadable"]] == ["foreign.queue"]
    assert foreign.exists()
    done = run("recover", str(config.resolved_queue_directory))
    assert done.code == 1
    assert "foreign.queue: not recovered: not a queue\n" in done.out


def test_a_queue_of_another_version_is_left_to_that_version_as_the_documentation_says(config: Config) -> None:
    upgrading = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    produce(config, 0, 10)
    (path,) = queue_files(config)
    (version,) = struct.unpack_from("=I", path.read_bytes(), VERSION_OFFSET)
    assert f"| queue files | {version} | only the version that wrote them |" in upgrading

    def write(number: int) -> bytes:
        with path.open("r+b") as file:
            file.seek(VERSION_OFFSET)
            file.write(struct.pack("=I", number))
        return path.read_bytes()

    of_before = write(2)
    with Sidecar(config) as listener:
        listener.wait_for("written=")
        assert listener.stop() == 0
    assert path.read_bytes() == of_before
    done = run("recover", str(config.resolved_queue_directory))
    (shown,) = re.findall(r"```text\n(.*?)```", upgrading, re.DOTALL)
    shown = re.sub(r"\w+(?=\.queue)", path.stem, shown).replace("queues", str(config.resolved_queue_directory))
    assert (done.code, done.out) == (1, shown)
    assert path.read_bytes() == of_before
    assert read_records(config.directory, "log") == []
    write(version)
    code, found = recover(config)
    assert (code, found["recovered"], numbers(config)) == (0, 10, list(range(10)))


@pytest.mark.parametrize("directory", ["nowhere", "file", "segments"])
def test_a_directory_that_is_none_of_queues_is_a_wrong_command_line(directory: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "segments").mkdir()
    done = run("recover", str(tmp_path / directory))
    assert (done.code, str(tmp_path / directory) in done.err) == (2, True)
    assert not (tmp_path / "nowhere").exists()


def test_a_signal_ends_the_waiting_and_what_is_left_stays(
    configure: Configure, tmp_path: Path, program: tuple[str, ...]
) -> None:
    config = configure(listener="external", drain_deadline_s=600)
    produce(config, 0, 100)
    variables = {**environment(config), "INFERENCE_LOGGING_SINK": f"unix://{tmp_path}/nobody"}
    options = ["--directory", str(config.directory), str(config.resolved_queue_directory)]
    command = [*program, "recover", *options]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        leads = config.resolved_queue_directory / "leader.lock"
        wait_until(leads.exists, "its listener, which begins once signals are taken")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    assert len(queue_files(config)) >= 1
