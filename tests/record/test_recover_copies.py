"""Queue directories that are copied, or none's: what `recover` takes once, and what `ctl clean` removes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from tests.kit.child import in_child
from tests.kit.command_line import Done, run
from tests.kit.signatures import Configure
from tests.record.audited import check, killed, producer, read

pytestmark = pytest.mark.usefixtures("program")

COPIES = 6


@pytest.fixture(name="parameters")
def _parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    directories = {"directory": str(tmp_path / "logs"), "queue_directory": str(tmp_path / "queues")}
    parameters = {"service_name": "t", **directories, "audit": "on", "audit_block_s": 120, "rotate_bytes": 200_000}
    for name, value in {**parameters, "drain_deadline_s": 60}.items():
        if name != "queue_directory":
            monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(value))
    return parameters


def segments(parameters: dict[str, Any]) -> dict[str, bytes]:
    """Return the content of each segment of the audit lane."""
    return {path.name: path.read_bytes() for path in Path(parameters["directory"]).glob("audit/t-audit-*.jsonl")}


def recover(directory: Path) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what is reported."""
    done = run("recover", str(directory), "--json")
    return done.code, json.loads(done.out)


def copies(parameters: dict[str, Any], process: subprocess.Popen[bytes], tmp_path: Path) -> tuple[list[Path], set[Any]]:
    """Copy the queue directory again and again while records are committed."""
    made, acknowledged = [], set()
    for number in range(COPIES):
        acknowledged |= read(process, 150)
        made.append(tmp_path / f"copy-{number}")
        shutil.copytree(parameters["queue_directory"], made[-1])
    acknowledged |= read(process, 300)
    return made, acknowledged


def test_copies_made_while_records_are_committed_destroy_none_of_them_when_they_are_recovered_later(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    with producer(parameters) as process:
        made, acknowledged = copies(parameters, process, tmp_path)
        process.send_signal(signal.SIGKILL)
        acknowledged |= read(process)
    with Logger(Config(**parameters)) as logger:
        assert logger.flush(60.0)
    before = segments(parameters)
    check(parameters, acknowledged)
    for copy in made:
        code, found = recover(copy)
        assert code == (1 if found["kept"] else 0)
        assert {name: segments(parameters)[name] for name in before} == before
    check(parameters, acknowledged)


@pytest.mark.servers
def test_copies_recovered_while_the_server_runs_are_left_alone_and_it_is_said(
    parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_DRAIN_DEADLINE_S", "0.5")
    # One segment, which has a writer as long as the server runs.
    parameters["rotate_bytes"] = 1 << 30
    with producer(parameters) as process:
        made, acknowledged = copies(parameters, process, tmp_path)
        for copy in made:
            code, found = recover(copy)
            assert code == 1
            assert any("a listener still writes the records of process" in kept for kept in found["kept"])
        acknowledged |= killed(process, 300)
    with Logger(Config(**parameters)) as logger:
        assert logger.flush(60.0)
    check(parameters, acknowledged)


def test_a_moved_queue_directory_is_recovered_as_if_it_stood_where_it_was(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    with producer(parameters) as process:
        acknowledged = killed(process, 500)
    moved = Path(parameters["queue_directory"]).rename(tmp_path / "moved")
    code, found = recover(moved)
    assert (code, found["kept"]) == (0, [])
    check({**parameters, "queue_directory": str(moved)}, acknowledged)


def test_a_file_that_the_control_page_names_is_not_cut_unless_it_is_a_segment(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    with producer(parameters) as process:
        acknowledged = killed(process, 100)
    victim = tmp_path / "letter.txt"
    victim.write_bytes(b"a line\n" * 400 + b"and an end without one")
    content = victim.read_bytes()
    queues = Path(parameters["queue_directory"])
    (page,) = (queues / "audit").glob("control-*")
    stored, segment = page.read_bytes(), max(Path(parameters["directory"]).glob("audit/*.jsonl"))
    # Offset, length and bytes of the path.
    begin, path = stored.index(bytes(segment)), bytes(victim).ljust(len(bytes(segment)), b"\0")
    place = (100).to_bytes(8, "little") + len(bytes(victim)).to_bytes(4, "little") + path
    page.write_bytes(stored[: begin - 12] + place + stored[begin + len(path) :])
    code, found = recover(queues)
    assert victim.read_bytes() == content
    assert (code, [kept.startswith(str(victim)) for kept in found["kept"]]) == (1, [True])
    check(parameters, acknowledged)


def clean(directory: Path) -> Done:
    """Run the command for a queue directory."""
    return run("ctl", "--queue-directory", str(directory), "clean")


def test_the_directory_of_a_service_goes_once_its_last_process_has_ended(configure: Configure) -> None:
    config = configure()
    directory = config.resolved_queue_directory
    with Logger(config) as logger:
        get_logger("t").warning("n")
        assert logger.flush()
        done = clean(directory)
        assert (done.code, done.out) == (0, f"kept {directory}: 1 queue is in use or waits for a listener\n")
    assert clean(directory).out == f"removed {directory}\n"
    assert not directory.exists()
    again = clean(directory)
    assert (again.code, again.err.count("does not exist")) == (2, 1)
    with Logger(config) as logger:
        assert get_logger("t").warning("n")
        assert logger.flush(), "a service that begins again makes it anew"


def test_a_directory_where_records_of_the_dead_wait_stays_and_so_does_one_with_other_files(
    configure: Configure,
) -> None:
    config = configure(listener="external")

    def child() -> None:
        Logger(config)
        get_logger("t").warning("n")
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)
    directory = config.resolved_queue_directory
    assert "1 queue is in use or waits" in clean(directory).out
    assert len(list(directory.glob("*.queue"))) == 1
    (other := directory.with_name("other")).mkdir()
    (other / "control-5").touch()
    (other / "mine.txt").write_text("not of a queue directory")
    assert clean(other).out == f"kept {other}: 'mine.txt' is no file of a queue directory\n"
    assert (other / "mine.txt").exists()
    (other / "mine.txt").unlink()
    assert clean(other).out == f"removed {other}\n"
    assert not other.exists()
