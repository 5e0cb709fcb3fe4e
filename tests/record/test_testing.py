"""What users' own tests build on: records captured without configuration, from whatever the process records."""

from __future__ import annotations

import asyncio
import doctest
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

import inference_logging.testing
from inference_logging import Config, ConfigError, Handler, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.errors import InferenceLoggingError
from inference_logging.testing import capture_records
from tests.kit.signatures import Configure
from tests.kit.support import read_records

pytestmark = pytest.mark.servers


def make_app(config: Config | None = None) -> FastAPI:
    app = FastAPI()
    app.add_middleware(InferenceLoggingMiddleware, config=config)

    @app.get("/items/{number}")
    async def item(number: int) -> int:
        get_logger("app").debug("asked", number=number)
        return number

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        def parts() -> Iterator[str]:
            yield from "abc"

        return StreamingResponse(parts())

    return app


APP = make_app()
"""An application as a module of its users has it: made once, at import, without a word about tests."""


def paths(records: list[dict[str, object]]) -> list[object]:
    return [record["url.path"] for record in records]


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(inference_logging.testing, raise_on_error=True).attempted > 5


@pytest.mark.parametrize("number", [1, 2])
def test_an_application_made_at_import_is_captured_by_each_test_anew(number: int) -> None:
    with capture_records() as records:
        TestClient(APP).get(f"/items/{number}")
        assert paths(records.requests) == [f"/items/{number}"]
        assert [log["attributes"] for log in records.logs] == [{"number": number}]
        assert records.logs[0]["request_id"] == records.requests[0]["request_id"]


def test_the_servers_lifespan_may_lie_within_the_capture_or_around_it(configure: Configure) -> None:
    with capture_records() as records, TestClient(APP) as client:
        client.get("/items/1")
    assert paths(records.requests) == ["/items/1"]
    with TestClient(make_app(configure())) as client:
        with capture_records() as first:
            client.get("/items/2")
        with capture_records() as second:
            client.get("/items/3")
    assert (paths(first.requests), paths(second.requests)) == (["/items/2"], ["/items/3"])


def test_a_stream_is_captured_when_it_has_ended() -> None:
    with capture_records() as records:
        assert TestClient(APP).get("/stream").text == "abc"
        (request,) = records.requests
    assert (request["outcome"], request["chunks"]) == ("ok", 3)


def test_an_open_application_and_logger_go_on_in_their_own_directory_before_and_after(configure: Configure) -> None:
    config = configure(level="DEBUG")
    client = TestClient(make_app(config))
    with Logger(config) as own:
        client.get("/items/1")
        with capture_records() as records:
            client.get("/items/2")
        client.get("/items/3")
        assert own.flush()
        found = read_records(config.directory)
    assert paths(records.requests) == ["/items/2"]
    assert [record["attributes"]["number"] for record in records.logs] == [2]
    assert paths([record for record in found if record["event_name"] == "request"]) == ["/items/1", "/items/3"]
    assert [record["attributes"]["number"] for record in found if record["event_name"] == "log"] == [1, 3]


def test_what_the_applications_configuration_says_about_requests_holds(configure: Configure) -> None:
    with capture_records() as records:
        TestClient(make_app(configure(chunks="events"))).get("/stream")
        assert len(records.named("request.chunk")) == 3
        assert not configure().directory.exists()


def test_the_innermost_capture_takes_all_and_the_outer_goes_on_after_it() -> None:
    log = get_logger("nested")
    with capture_records() as outer:
        log.info("one")
        with capture_records() as inner:
            log.info("two")
        log.info("three")
    assert [record["message"] for record in inner] == ["two"]
    assert [record["message"] for record in outer] == ["one", "three"]


def test_records_of_the_standard_library_and_of_own_events_are_captured() -> None:
    with capture_records() as records:
        Handler().handle(logging.makeLogRecord({"name": "standard", "msg": "careful", "levelno": logging.WARNING}))
        assert records.logger.event("engine.step", ["running"])(3)
        assert [record["running"] for record in records.named("engine.step")] == [3]
        assert [record["message"] for record in records.logs] == ["careful"]
        assert [record["event_name"] for record in records[:5]] == ["log", "engine.step"]
        assert "careful" in repr(records)


def test_the_environment_is_neither_read_nor_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("INFERENCE_LOGGING_CHUNKS", "LOUD")
    before = dict(os.environ)
    with capture_records() as records:
        get_logger("quiet").debug("heard")
        assert dict(os.environ) == before
    assert len(records) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_directories_are_gone_afterwards_and_the_records_can_still_be_read() -> None:
    with capture_records() as records:
        get_logger("late").info("there")
    assert not records.logger.config.directory.exists()
    assert not records.logger.config.resolved_queue_directory.exists()
    assert [record["message"] for record in records] == ["there"]
    assert records.logger.close(), "closed already"


def test_a_failing_test_is_reported_as_it_failed_and_leaves_no_capture_behind() -> None:
    with pytest.raises(ZeroDivisionError), capture_records() as records:
        raise ZeroDivisionError
    assert not records.logger.config.directory.parent.exists()
    with capture_records() as records:
        assert list(records) == []


def test_parameters_are_those_of_the_configuration() -> None:
    with capture_records(level="WARN") as records:
        get_logger("quiet").info("not heard")
        get_logger("quiet").warning("heard")
    assert [record["message"] for record in records] == ["heard"]
    with pytest.raises(ConfigError, match="levle"), capture_records(levle="WARN"):
        pass


def test_records_that_do_not_come_are_an_error_and_not_an_empty_list() -> None:
    late = pytest.raises(InferenceLoggingError, match=r"deadline_s=0\.01")
    with late, capture_records(listener="external", drain_deadline_s=0) as records:
        get_logger("nobody").info("listens")
        records.flush(deadline_s=0.01)


def test_a_capture_can_be_used_in_asynchronous_tests() -> None:
    async def test() -> None:
        with capture_records() as records:
            await asyncio.gather(*(asyncio.to_thread(TestClient(APP).get, f"/items/{n}") for n in range(4)))
            assert len(records.requests) == 4

    asyncio.run(test())


def test_the_fixture_comes_with_the_plugin_and_only_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from inference_logging import get_logger\n"
        "def test_it(inference_logging_records):\n"
        "    get_logger('x').info('y')\n"
        "    assert [log['message'] for log in inference_logging_records.logs] == ['y']\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    without = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "fixture 'inference_logging_records' not found" in without.stdout
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["inference_logging.pytest_plugin"]\n')
    with_plugin = subprocess.run(command, capture_output=True, text=True, check=False)
    assert with_plugin.returncode == 0, with_plugin.stdout
