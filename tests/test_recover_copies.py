"""`recover` of copied and moved queue directories, with Python and without: nothing acknowledged is destroyed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from tests.command_line import run
from tests.test_audit_tampering import check, producer, read

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
        acknowledged |= read(process, 300)
        process.send_signal(signal.SIGKILL)
        acknowledged |= read(process)
    with Logger(Config(**parameters)) as logger:
        assert logger.flush(60.0)
    check(parameters, acknowledged)


def test_a_moved_queue_directory_is_recovered_as_if_it_stood_where_it_was(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    with producer(parameters) as process:
        acknowledged = read(process, 500)
        process.send_signal(signal.SIGKILL)
        acknowledged |= read(process)
    moved = Path(parameters["queue_directory"]).rename(tmp_path / "moved")
    code, found = recover(moved)
    assert (code, found["kept"]) == (0, [])
    check({**parameters, "queue_directory": str(moved)}, acknowledged)


def test_a_file_that_the_control_page_names_is_not_cut_unless_it_is_a_segment(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    with producer(parameters) as process:
        acknowledged = read(process, 100)
        process.send_signal(signal.SIGKILL)
        acknowledged |= read(process)
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
