"""A record is written where, and redacted as, its own producer's configuration says, or the start says why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, OpenError, get_logger
from inference_logging._native import queue_directories
from inference_logging.record.settings import settings
from tests.kit.command_line import run
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until


def python(program: str, directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in this directory."""
    command, variables = [sys.executable, "-c", program, *arguments], {**os.environ, **environment}
    return subprocess.run(command, cwd=directory, env=variables, check=True, capture_output=True, text=True)


APPLICATION = """
import sys
from inference_logging import Config, Logger, get_logger

with Logger(Config({parameters})) as logger:
    get_logger("application").info("mine", secret="{name}", password="{name}")
    print(flush=True)
    sys.stdin.readline()
    assert logger.flush()
"""


def start(name: str, directory: Path, service_name: str, **parameters: Any) -> subprocess.Popen[str]:
    """Start an application in a directory of its own; it has made its record when this returns."""
    directory.mkdir(exist_ok=True)
    values = {"service_name": service_name, **parameters}
    program = APPLICATION.format(name=name, parameters=", ".join(f"{key}={value!r}" for key, value in values.items()))
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=directory, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Let an application drain and end."""
    process.communicate("\n")
    assert process.returncode == 0


@pytest.fixture
def service_name(tmp_path: Path) -> Any:
    """Return a name that no other test has, and remove its queue directories."""
    name = f"origin-{os.getpid()}-{abs(hash(str(tmp_path))) % 10**9}"
    yield name
    for directory in queue_directories(name):
        shutil.rmtree(directory)


@pytest.mark.servers
@pytest.mark.parametrize("directory", ["b", "a"], ids=["of its own", "of both"])
def test_two_applications_of_one_name_write_each_into_its_own_directory_with_its_own_redaction(
    tmp_path: Path, service_name: str, directory: str
) -> None:
    first = start("first", tmp_path / "a", service_name)
    end(start("second", tmp_path / directory, service_name, redact_fields=("password",)))
    end(first)
    found = {path.parent.name: read_records(path, "log") for path in tmp_path.glob("*/logs")}
    mine, theirs = sorted(
        (one for records in found.values() for one in records), key=lambda one: one["attributes"]["secret"]
    )
    assert mine["attributes"] == {"secret": "first", "password": "first"}
    assert theirs["attributes"] == {"secret": "second", "password": "[redacted:field]"}
    assert (mine in found["a"], theirs in found[directory]) == (True, True)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"directory": "elsewhere"}, "directory is"),
        ({"redact_patterns": ("email",)}, 'redact_patterns is [] there and ["email"] here'),
        ({"service_name": "other"}, 'service_name is "inference" there and "other" here'),
        ({"sink": "null"}, 'sink is "file" there and "null" here'),
    ],
)
def test_a_start_in_another_configurations_queue_directory_is_refused_and_names_what_differs(
    configure: Configure, changed: dict[str, Any], difference: str
) -> None:
    with Logger(configure()):
        with pytest.raises(OpenError, match=r"queue_directory=.*in use with another configuration") as refused:
            Logger(configure(**changed))
        assert difference in str(refused.value)


def test_parameters_that_do_not_say_where_or_how_records_are_written_may_differ(configure: Configure) -> None:
    with Logger(configure()), Logger(configure(flush_interval_s=0.1, level="DEBUG", retention_s=60.0)):
        pass


def test_a_sidecar_with_other_settings_than_its_producers_refuses_to_listen(configure: Configure) -> None:
    config = configure(listener="external")
    with Logger(config):
        done = run("listen", "--queue-directory", str(config.queue_directory))
    assert done.code != 0
    assert "in use with another configuration" in done.err
    assert f'directory is "{config.directory}" there' in done.err


def test_a_queue_directory_of_which_everything_has_ended_takes_another_configuration(
    configure: Configure, tmp_path: Path
) -> None:
    Logger(configure()).close()
    with Logger(configure(directory=tmp_path / "other")) as logger:
        get_logger("late").info("here")
        assert logger.flush()
    assert messages(tmp_path / "other") == ["here"]


def passwords(config: Config) -> list[str]:
    """Return what stands in the records that a killed process has left."""
    return [record["password"] for record in read_records(config.directory, "left")]


def messages(directory: Path) -> list[str]:
    return [record["message"] for record in read_records(directory, "log")]


KILLED = """
import os, signal
from inference_logging import Config, Logger
logger = Logger(Config(listener="external", directory={directory!r}, queue_directory={queues!r}))
assert logger.event("left", ["password"])("hunter2")
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_behind(config: Config) -> None:
    """Let a process be killed with a record in its queue."""
    program = KILLED.format(directory=str(config.directory), queues=str(config.queue_directory))
    subprocess.run([sys.executable, "-c", program], check=False)


def test_what_a_killed_process_left_is_not_written_as_another_configuration_says(
    configure: Configure, tmp_path: Path
) -> None:
    config = configure()
    leave_behind(config)
    with Logger(configure(directory=tmp_path / "other")) as logger:
        assert logger.flush()
    assert read_records(tmp_path / "other", "left") == []
    assert config.queue_directory is not None
    (aside,) = (path for path in config.queue_directory.iterdir() if path.is_dir())
    found = json.loads(run("recover", str(aside), "--directory", str(config.directory), "--json").out)
    assert found["recovered"] == 1
    assert passwords(config) == ["hunter2"]


def test_recover_does_not_write_without_the_redaction_that_the_producers_had(
    configure: Configure, tmp_path: Path
) -> None:
    Logger(configure(redact_fields=("password",))).close()
    done = run("recover", str(tmp_path / "queues"), "--directory", str(tmp_path / "segments"))
    assert done.code == 2
    assert 'redact_fields is ["password"] there and [] here' in done.err


def test_recover_does_not_write_into_a_directory_that_nobody_named(configure: Configure) -> None:
    config = configure()
    leave_behind(config)
    done = run("recover", str(config.queue_directory))
    assert done.code == 2
    assert f'directory is "{config.directory}" there and "{Path("logs").absolute()}" here' in done.err


def test_recover_by_the_configuration_in_the_queue_directory_writes_as_the_producers_said(configure: Configure) -> None:
    config = configure()
    leave_behind(config)
    assert config.queue_directory is not None
    done = run("recover", str(config.queue_directory), "--config", str(config.queue_directory / "configuration.yaml"))
    assert done.code == 0, done.err
    assert passwords(config) == ["hunter2"]


WAITS = """
import asyncio, logging, sys
from inference_logging import Config, Handler, InferenceLoggingMiddleware

logging.basicConfig(level=logging.INFO, handlers=[Handler()])
logging.info("made at import, for jane@example.com")


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x"})


async def serve():
    config = Config(directory="chosen", redact_patterns=("email",), service_name=sys.argv[1])
    served = InferenceLoggingMiddleware(app, config=config)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        return next(messages)

    async def send(message):
        pass

    await served(scope, receive, send)
"""


def test_records_made_before_the_first_configuration_wait_for_it(tmp_path: Path, service_name: str) -> None:
    program = WAITS + "\nasyncio.run(serve())\nlogging.info('after')\n"
    python(program, tmp_path, service_name)
    assert not (tmp_path / "logs").exists()
    records = read_records(tmp_path / "chosen", "log")
    assert messages(tmp_path / "chosen") == ["made at import, for [redacted:email]", "after"]
    assert sorted(record["timestamp"] for record in records) == [record["timestamp"] for record in records]


def test_what_no_configuration_came_for_is_written_at_exit(tmp_path: Path) -> None:
    python(WAITS, tmp_path)
    assert messages(tmp_path / "logs") == ["made at import, for jane@example.com"]


def test_records_that_cannot_be_written_at_exit_are_counted_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = python(WAITS, tmp_path, INFERENCE_LOGGING_QUEUE_DIRECTORY=str(tmp_path / "file"))
    (line,) = done.stderr.splitlines()
    assert line.startswith("inference_logging: 1 records of the application are lost: ")
    assert f"queue_directory={tmp_path / 'file'}" in line


def test_records_that_wait_are_bounded_and_what_is_above_it_is_counted(tmp_path: Path, service_name: str) -> None:
    program = WAITS + (
        "\nfor number in range(5000): logging.info('n')\n"
        "asyncio.run(serve())\n"
        "from inference_logging import Logger\n"
        "print(Logger.newest().stats()['dropped'])\n"
    )
    assert python(program, tmp_path, service_name).stdout == "{'no_queue': {'INFO': 905}}\n"
    assert len(read_records(tmp_path / "chosen", "log")) == 4096


def test_of_forked_children_the_first_that_is_configured_writes_what_their_parent_made(
    tmp_path: Path, service_name: str
) -> None:
    program = WAITS + (
        "\nimport os\n"
        "for _ in range(3):\n"
        "    if (child := os.fork()) == 0:\n"
        "        asyncio.run(serve())\n"
        "        sys.exit()\n"
        "    os.waitpid(child, 0)\n"
    )
    python(program, tmp_path, service_name)
    assert not (tmp_path / "logs").exists()
    assert len(read_records(tmp_path / "chosen", "log")) == 1
    assert len(read_records(tmp_path / "chosen", "request")) == 3


def test_a_closed_logger_does_not_silence_one_that_is_open_still(configure: Configure, tmp_path: Path) -> None:
    log = get_logger("app")
    with Logger(configure()) as first:
        with Logger(configure(directory=tmp_path / "second", queue_directory=tmp_path / "second-queues")):
            assert log.info("to the second")
        assert log.info("to the first")
        assert first.flush()
        assert messages(first.config.directory) == ["to the first"]


def test_what_is_logged_when_the_last_logger_is_closed_goes_where_that_one_wrote(
    tmp_path: Path, service_name: str
) -> None:
    program = (
        "from inference_logging import Config, Logger, get_logger\n"
        f"Logger(Config(directory='chosen', redact_patterns=('email',), service_name={service_name!r})).close()\n"
        "get_logger('app').info('jane@example.com')\n"
    )
    python(program, tmp_path)
    assert not (tmp_path / "logs").exists()
    assert messages(tmp_path / "chosen") == ["[redacted:email]"]


def test_verify_finds_the_queues_by_the_segments_without_the_servers_environment(
    configure: Configure, tmp_path: Path
) -> None:
    config = configure(redact_fields=("password",))
    with Logger(config) as logger:
        assert logger.event("kept", ["n"])(1)
        assert logger.flush()
        found = json.loads(run("verify", str(config.directory), "--json").out)
        assert [process["state"] for process in found["processes"]] == ["alive"]
        assert found["balanced"] is True


def test_verify_does_not_take_the_queues_of_another_configuration_in_the_same_place(
    configure: Configure, tmp_path: Path
) -> None:
    first = configure()
    with Logger(first) as logger:
        assert logger.event("kept", ["n"])(1)
    leave_behind(first)
    with Logger(configure(directory=tmp_path / "other")) as logger:
        assert logger.event("other", ["n"])(1)
        assert logger.flush()
        found = json.loads(run("verify", str(first.directory), "--json").out)
        states = sorted(process["state"] for process in found["processes"])
        assert states == ["closed", "waiting_for_a_listener"]
        found = json.loads(run("verify", str(tmp_path / "other"), "--json").out)
        assert [process["state"] for process in found["processes"]] == ["alive"]


@pytest.fixture
def taken(service_name: str, tmp_path: Path) -> Iterator[Path]:
    """Return the default queue directory of a service, which does not exist; whatever is made there is removed."""
    path = Config(service_name=service_name, directory=tmp_path / "logs").resolved_queue_directory
    yield path
    if path.is_dir() and not path.is_symlink():
        path.chmod(0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("in_the_way", ["a directory that all may write to", "a file", "a link"])
def test_what_another_user_made_of_the_queue_directorys_name_does_not_keep_a_server_from_starting(
    taken: Path, service_name: str, tmp_path: Path, in_the_way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if in_the_way == "a file":
        taken.touch()
    elif in_the_way == "a link":
        taken.symlink_to(tmp_path)
    else:
        taken.mkdir()
        taken.chmod(0o777)
    config = Config(service_name=service_name, directory=tmp_path / "logs")
    with Logger(config):
        assert get_logger("app").info("served")
        with Logger(config):
            assert [path.name for path in queue_directories(service_name)] == [f"{taken.name}-2"]
    assert messages(tmp_path / "logs") == ["served"]
    assert (
        f"inference_logging: {taken} is no directory of mode 0700; queues are in {taken}-2" in capsys.readouterr().err
    )


def test_the_directory_of_the_session_is_taken_where_shared_memory_is_not_to_be_had(
    taken: Path, service_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    config = Config(service_name=service_name, directory=tmp_path / "logs")
    assert config.resolved_queue_directory == taken
    taken.touch()
    assert config.resolved_queue_directory == session / taken.name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_who_owns_what_is_in_the_way_is_said(taken: Path, service_name: str, tmp_path: Path) -> None:
    taken.mkdir(mode=0o700)
    os.chown(taken, 4711, -1)
    sentence = settings(Config(service_name=service_name, directory=tmp_path / "logs")).passed_over()
    assert sentence is not None
    assert sentence.startswith(f"{taken} belongs to ")
    assert "(uid 4711)" in sentence


def test_a_start_names_what_another_configuration_left_and_the_command_that_writes_it(
    configure: Configure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure()
    leave_behind(config)
    Logger(configure(directory=tmp_path / "other")).close()
    (line,) = capfd.readouterr().err.splitlines()
    assert "1 record of another configuration left in" in line
    assert f'directory is "{config.directory}" there and "{tmp_path / "other"}" here' in line
    command = line.split("`")[1].split()
    assert run(*command[1:]).code == 0
    assert passwords(config) == ["hunter2"]
    Logger(configure(directory=tmp_path / "other")).close()
    assert capfd.readouterr().err == ""


def test_a_sidecar_names_producers_of_another_configuration_that_nobody_listens_to(
    tmp_path: Path, service_name: str
) -> None:
    chosen, said = tmp_path / "chosen", tmp_path / "said"
    with Logger(Config(service_name=service_name, directory=chosen, listener="external", drain_deadline_s=0)) as logger:
        assert logger.event("kept", ["n"])(1)
        command = [sys.executable, "-m", "inference_logging.cli.main", "listen", "--service-name", service_name]
        with said.open("w") as file, subprocess.Popen(command, cwd=tmp_path, stderr=file) as sidecar:
            try:
                wait_until(lambda: "another configuration" in said.read_text(), "what nobody listens to")
            finally:
                sidecar.terminate()
    directory = logger.config.resolved_queue_directory
    assert f"1 record of another configuration waiting for a listener in {directory}" in said.read_text()
    assert f'directory is "{chosen}" there' in said.read_text()
