"""Which servers `ctl`, `recover` and `ab` act on: those of the application in whose folder they run."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging._native import queue_directories
from tests.command_line import run
from tests.support import Recorded, read_records

pytestmark = pytest.mark.usefixtures("program")


def in_force(config: Config) -> dict[str, Any]:
    """Return the overrides of a queue directory by name."""
    shown = json.loads(run("ctl", "--queue-directory", str(config.resolved_queue_directory), "show", "--json").out)
    return {override["what"]: override["value"] for override in shown["overrides"]}


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Give names of services of this test alone, and remove their default queue directories afterwards."""
    made = [f"t{uuid.uuid4().hex[:12]}" for _ in range(2)]
    yield made
    for directory in (path for name in made for path in queue_directories(name)):
        shutil.rmtree(directory)


def in_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("command", [["ctl", "disable"], ["ctl", "clean"], ["recover"]])
def test_a_command_in_another_folder_leaves_a_server_of_the_same_name_alone_unless_the_command_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], command: list[str]
) -> None:
    config = Config(service_name=names[0], directory=tmp_path / "a" / "logs")
    place = str(config.resolved_queue_directory)
    in_folder(monkeypatch, tmp_path / "b")
    monkeypatch.setenv("INFERENCE_LOGGING_SERVICE_NAME", names[0])
    with Logger(config) as logger:
        done = run(*command)
        assert place not in done.out + done.err
        assert get_logger("app").info("recorded")
        assert logger.flush()
        assert read_records(config.directory, "control.changed") == []
        named = run(*command, "--service-name", names[0])
        assert place in named.out + named.err.replace("\n", "")


def test_a_command_in_the_folder_of_an_application_finds_its_servers_whatever_they_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    in_folder(monkeypatch, tmp_path / "a")
    by_folder = Config(service_name=names[0], redact_patterns=["email"])
    with Logger(by_folder):
        assert run("ctl", "level", "DEBUG").code == 0
        assert in_force(by_folder) == {"level": "DEBUG"}
    in_folder(monkeypatch, tmp_path / "c")
    by_segments = Config(service_name=names[1], queue_directory=tmp_path / "queues")
    with Logger(by_segments) as logger:
        assert get_logger("app").warning("a segment")
        assert logger.flush()
        assert run("ctl", "level", "DEBUG").code == 0
        assert in_force(by_segments) == {"level": "DEBUG"}


def test_of_several_applications_in_a_folder_all_are_listed_and_none_is_touched_without_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    in_folder(monkeypatch, tmp_path / "a")
    configs = [Config(service_name=name) for name in names]
    with Logger(configs[0]), Logger(configs[1]):
        for command in (["ctl", "disable"], ["recover"]):
            done = run(*command)
            assert done.code == 2
            assert all(str(config.resolved_queue_directory) in done.err.replace("\n", "") for config in configs), done
        assert [in_force(config) for config in configs] == [{}, {}]
        assert run("ctl", "--service-name", names[0], "level", "WARN").code == 0
        assert [in_force(config) for config in configs] == [{"level": "WARN"}, {}]
        assert run("ctl", "level", "DEBUG", "--all").code == 0
        assert [in_force(config) for config in configs] == [{"level": "DEBUG"}, {"level": "DEBUG"}]
        assert run("ctl", "--all", "reset").out == "ended: 2\n"


def test_options_mean_the_same_before_and_behind_a_command_and_for_recover(recorded: Recorded) -> None:
    directory = str(recorded.config.resolved_queue_directory)
    place = ["--queue-directory", directory]
    assert run("ctl", *place, "show").out == run("ctl", "show", *place).out != ""
    assert run("ctl", "--queue-directory", "/nowhere", "show", *place).code == 0
    segments = ["--directory", str(recorded.config.directory)]
    assert run("recover", *place, *segments).out == run("recover", *segments, directory).out != ""
    assert run("recover", *place, *segments, directory).code == 2


def test_a_run_of_the_command_is_no_process_in_counts(recorded: Recorded) -> None:
    for command in (["level", "DEBUG"], ["reset"]):
        assert run("ctl", "--queue-directory", str(recorded.config.queue_directory), *command).code == 0
    assert get_logger("app").warning("served")
    assert recorded.logger.flush()
    recorded.close()
    segments = ["--queue-directory", str(recorded.config.queue_directory), str(recorded.config.directory)]
    done = run("verify", *segments)
    assert done.out.startswith("BALANCED: every record of 1 process and 2 commands is accounted for.")
    totals = json.loads(run("verify", "--json", *segments).out)["totals"]
    assert (totals["processes"], totals["commands"], totals["written"]) == (1, 2, 3)
