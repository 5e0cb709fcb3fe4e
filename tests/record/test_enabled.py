"""Off: by parameter, for a while by `ctl disable`, and where the core does not run; requests go on."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import inference_logging
from inference_logging import Config, Handler, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.record.asgi.middleware import reopen_all
from inference_logging.triton import RequestLog, log_requests
from tests.kit import fake_triton
from tests.kit.command_line import Done, run
from tests.kit.signatures import Configure
from tests.kit.support import Client, Recorded, answer, http_scope, read_records, replying


def ctl(config: Config, *arguments: str) -> Done:
    """Run the command for the queue directory of ``config``."""
    return run("ctl", "--queue-directory", str(config.queue_directory), *arguments)


@pytest.mark.parametrize("value", [False, "off", "false"])
def test_nothing_is_opened_and_nothing_recorded_where_it_is_off(configure: Configure, value: Any) -> None:
    config = configure(enabled=value, audit="on", health_path="/health/logging")
    client, probe = Client(), Client()
    middleware = InferenceLoggingMiddleware(replying(*answer(b"x")), config=config)
    asyncio.run(middleware(http_scope(), client.receive, client.send))
    assert [message.get("body", b"") for message in client.sent] == [b"", b"x"]
    asyncio.run(middleware(http_scope("/health/logging"), probe.receive, probe.send))
    assert probe.sent[0]["status"] == 200
    assert json.loads(probe.sent[1]["body"])["status"] == "off"
    reopen_all()
    with Logger(config) as logger:
        assert logger.event("e", ["a"])(1) is False
        assert logger.event("e", ["a"], lane="audit")(1) is False
        assert asyncio.run(logger.audit("charged", n=1)) is False
        assert get_logger("app").error("lost on purpose") is False
        assert (logger.flush(), logger.stats()["accepted"]) == (True, 0)
    assert not config.directory.exists()
    assert not config.resolved_queue_directory.exists()


def test_the_environment_switches_off_loggers_and_handlers_that_nobody_configures(tmp_path: Path) -> None:
    program = (
        "import logging\n"
        "from inference_logging import Handler, get_logger\n"
        "logging.basicConfig(level=logging.INFO, handlers=[Handler()])\n"
        "logging.info('by the handler')\n"
        "assert get_logger('app').info('by the logger') is False\n"
    )
    environment = {"INFERENCE_LOGGING_ENABLED": "false", "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


def test_a_configuration_file_says_it_as_true_and_false(tmp_path: Path) -> None:
    file = tmp_path / "logging.yaml"
    for written, meant in (("false", "off"), ("true", "on"), ("off", "off"), ("on", "on")):
        file.write_text(f"version: 1\nenabled: {written}\n")
        assert Config(config_file=file).enabled == meant


@pytest.mark.usefixtures("fake_backend")
def test_a_model_of_triton_serves_without_records_where_it_is_off(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    monkeypatch.setenv("INFERENCE_LOGGING_ENABLED", "off")
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(config.queue_directory))
    asked = [fake_triton.request(name="a")]
    model = log_requests(type("TritonPythonModel", (), {"execute": lambda _self, requests: list(requests)}))()
    model.initialize(fake_triton.arguments())
    assert model.execute(asked) == asked
    model.finalize()
    assert not config.resolved_queue_directory.exists()


@pytest.mark.usefixtures("fake_backend")
def test_ctl_switches_a_model_of_triton_off_and_on(configure: Configure) -> None:
    config = configure()
    log = RequestLog(fake_triton.arguments(), config)
    try:
        assert ctl(config, "disable").code == 0
        assert log.begin([fake_triton.request(name="a")]) == []
        log.end([], [])
        assert log.serve(lambda _model, requests: list(requests), None, ["a"]) == ["a"]
        assert ctl(config, "enable").code == 0
        assert len(log.begin([fake_triton.request(name="b")])) == 1
    finally:
        log.close()


def test_ctl_switches_requests_loggers_and_events_off_and_on_and_each_change_is_on_record(recorded: Recorded) -> None:
    log, emit = get_logger("app"), recorded.logger.event("e", ["a"])
    handled = logging.Logger("stdlib")  # noqa: LOG001 - outside the tree
    handled.addHandler(Handler())
    app = replying(*answer(b"x"))
    done = ctl(recorded.config, "disable", "--for", "10m")
    assert done.code == 0
    assert "enabled          off  until" in done.out
    assert [message.get("body", b"") for message in recorded.serve(app)] == [b"", b"x"]
    handled.warning("unseen")
    assert (log.error("unseen"), emit(1)) == (False, False)
    assert ctl(recorded.config, "enable").out == "ended: 1\n"
    assert ctl(recorded.config, "enable").out == "ended: 0\n"
    recorded.serve(app)
    assert (log.error("seen"), emit(2)) == (True, True)
    assert [record["message"] for record in recorded.records("log")] == ["seen"]
    assert [record["a"] for record in recorded.records("e")] == [2]
    assert len(recorded.records("request")) == 1
    changes = sorted(read_records(recorded.config.directory, "control.changed"), key=lambda record: record["timestamp"])
    assert [(change["what"], change["from"], change["to"]) for change in changes] == [
        ("enabled", None, "off"),
        ("enabled", "off", None),
    ]
    assert recorded.logger.stats()["dropped"] == {}


def test_ctl_disable_leaves_other_changes_as_they_are_and_reset_ends_it_too(recorded: Recorded) -> None:
    assert ctl(recorded.config, "level", "DEBUG").code == 0
    assert ctl(recorded.config, "disable").code == 0
    assert ctl(recorded.config, "enable").code == 0
    assert get_logger("app").debug("while DEBUG") is True
    assert ctl(recorded.config, "disable").code == 0
    assert ctl(recorded.config, "reset").out == "ended: 2\n"
    assert get_logger("app").info("again") is True


def test_ctl_finds_the_one_queue_directory_of_a_service_without_its_configuration(tmp_path: Path) -> None:
    name = f"ctl-{os.getpid()}"
    configs = [Config(service_name=name, directory=tmp_path / place) for place in "ab"]
    try:
        with Logger(configs[0]) as first:
            done = run("ctl", "--service-name", name, "show")
            assert (done.code, str(first.config.resolved_queue_directory) in done.out) == (0, True)
            with Logger(configs[1]):
                done = run("ctl", "--service-name", name, "show")
        assert done.code == 2
        assert "2 queue directories are meant, and nothing is done; name one with --queue-directory" in done.err
        assert f"({name} in {tmp_path / 'a'})" in done.err
        cleaned = run("ctl", "--service-name", name, "clean").out.splitlines()
        assert sorted(cleaned) == sorted(f"removed {config.resolved_queue_directory}" for config in configs)
    finally:
        for config in configs:
            shutil.rmtree(config.resolved_queue_directory, ignore_errors=True)


# As on Windows, where the core does not exist either.
BEGIN = """
import asyncio
import shutil  # which looks for Windows's modules where it is imported
import sys
sys.platform = "win32"
sys.modules["inference_logging._native"] = None
import inference_logging
"""


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)


def test_every_public_name_can_be_imported_and_one_line_says_what_is_missing() -> None:
    done = run_code("for name in inference_logging.__all__: print(name, getattr(inference_logging, name) is not None)")
    assert (done.returncode, done.stdout.split()[::2]) == (0, sorted(inference_logging.__all__)), done.stderr
    assert done.stderr == "inference_logging: no records are kept on win32: requests pass through\n"


def test_an_application_answers_as_without_us() -> None:
    done = run_code("""
import asyncio, logging
from inference_logging import Config, Handler, InferenceLoggingMiddleware, Logger, get_logger, install_logger

async def app(scope, receive, send):
    get_logger("app").bind(a=1).info("seen", tokens=3)
    await send({"type": "http.response.start", "status": 204, "headers": []})

async def main():
    sent = []
    async def send(message):
        sent.append(message)
    await InferenceLoggingMiddleware(app, Config(directory="logs"))({"type": "http"}, None, send)
    print(sent)

loop = asyncio.SelectorEventLoop()
loop.run_until_complete(main())
loop.close()
install_logger()
logging.getLogger().addHandler(Handler())
logging.getLogger("x").warning("dropped")
with Logger(Config()) as logger:
    print(logger.event("e", ["a"])(1), logger.flush(), logger.backlog_records, logger.stats())
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[{'type': 'http.response.start', 'status': 204, 'headers': []}]",
        "False True 0 {}",
    ]
    assert len(done.stderr.splitlines()) == 1
