"""The lifespan: the logger opens before the application's startup and drains after its shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import InferenceLoggingMiddleware, Logger, OpenError, get_logger
from inference_logging.errors import ConfigError
from tests.kit.servers import HERE, Server
from tests.kit.signatures import Configure, Message, Receive, Send
from tests.kit.support import Client, answer, http_scope, read_lines, read_records, replying, serve_one

pytestmark = pytest.mark.servers

Scope = MutableMapping[str, Any]
LIFESPAN = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
STARTUP: Message = {"type": "lifespan.startup"}
SHUTDOWN: Message = {"type": "lifespan.shutdown"}


def footers(directory: Path) -> list[dict[str, Any]]:
    return [line for line in read_lines(directory) if line["event_name"] == "segment.footer"]


def test_requests_are_written_and_the_segment_is_closed_when_the_lifespan_ends(configure: Configure) -> None:
    app, config = FastAPI(), configure(flush_interval_s=60, flush_records=1_000_000)
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    app.get("/")(lambda: "served")
    with TestClient(app) as client:
        for _ in range(50):
            client.get("/")
    assert len(read_records(config.directory, "request")) == 50
    (footer,) = footers(config.directory)
    (books,) = footer["processes"]
    assert (books["accepted"], books["written"], books["in_queue"], books["dropped"]) == (50, 50, 0, {})
    assert not list(config.resolved_queue_directory.glob("*.queue"))


def test_records_of_the_applications_own_startup_and_shutdown_are_written(configure: Configure) -> None:
    log = get_logger("app")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        assert log.info("starting")
        yield
        assert log.info("stopping")

    app, config = FastAPI(lifespan=lifespan), configure()
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    with TestClient(app):
        pass
    assert [record["message"] for record in read_records(config.directory)] == ["starting", "stopping"]
    assert len(footers(config.directory)) == 1


@pytest.mark.parametrize("ending", ["raises", "returns"])
def test_an_application_without_lifespan_gets_one_from_the_middleware(configure: Configure, ending: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if ending == "raises":
                raise AssertionError("http only")
            return
        await replying(*answer(b"x"))(scope, receive, send)

    config = configure()
    middleware = InferenceLoggingMiddleware(app, config=config)

    async def serve() -> list[Message]:
        server, request, shutdown = Client(), Client(), asyncio.Event()

        async def receive() -> Message:
            if not server.sent:
                return STARTUP
            await shutdown.wait()
            return SHUTDOWN

        lifespan = asyncio.ensure_future(middleware(dict(LIFESPAN), receive, server.send))
        await middleware(http_scope(), request.receive, request.send)
        shutdown.set()
        await lifespan
        return server.sent

    assert asyncio.run(serve()) == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]
    assert len(read_records(config.directory, "request")) == 1
    assert len(footers(config.directory)) == 1


def test_a_failing_startup_of_the_application_stays_a_failure_and_its_records_are_written(configure: Configure) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if get_logger("app").error("no GPU"):
            raise RuntimeError("no GPU")
        yield

    app, config = FastAPI(lifespan=lifespan), configure()
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    with pytest.raises(RuntimeError, match="no GPU"), TestClient(app):
        pass
    assert [record["message"] for record in read_records(config.directory)] == ["no GPU"]
    assert len(footers(config.directory)) == 1


def test_a_queue_that_cannot_be_had_fails_the_startup_with_the_parameter_before_the_applications_own(
    configure: Configure, tmp_path: Path
) -> None:
    started: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        started.append(scope)

    (tmp_path / "file").write_bytes(b"")
    middleware = InferenceLoggingMiddleware(app, config=configure(queue_directory=tmp_path / "file"))
    server = Client([STARTUP])

    async def serve() -> None:
        with pytest.raises(OpenError, match="queue_directory"):
            await middleware(dict(LIFESPAN), server.receive, server.send)

    asyncio.run(serve())
    (message,) = server.sent
    assert message["type"] == "lifespan.startup.failed"
    assert "queue_directory" in message["message"]
    assert started == []


def test_without_lifespan_a_queue_that_cannot_be_had_does_not_stop_the_serving_and_is_reported_once(
    configure: Configure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    messages = answer(b"x")
    middleware = InferenceLoggingMiddleware(
        replying(*messages), config=configure(queue_directory=tmp_path / "file", health_path="/health")
    )

    async def serve(path: str) -> list[Message]:
        client = Client()
        await middleware(http_scope(path), client.receive, client.send)
        return client.sent

    for _ in range(3):
        assert asyncio.run(serve("/")) == messages
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("inference_logging: requests are NOT recorded: ")
    assert f"queue_directory={tmp_path / 'file'}" in line
    assert asyncio.run(serve("/health"))[0]["status"] == 503


def refused(middleware: InferenceLoggingMiddleware, error: type[Exception], match: str) -> str:
    """Return what the server gets of a startup that fails."""
    server = Client([STARTUP])

    async def serve() -> None:
        with pytest.raises(error, match=match):
            await middleware(dict(LIFESPAN), server.receive, server.send)

    asyncio.run(serve())
    (message,) = server.sent
    assert message["type"] == "lifespan.startup.failed"
    return str(message["message"])


def test_a_wrong_value_in_the_environment_is_a_failed_startup_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_CHUNKS", "bogus")
    said = refused(InferenceLoggingMiddleware(replying()), ConfigError, "chunks='bogus'")
    assert "chunks='bogus' (environment INFERENCE_LOGGING_CHUNKS): must be one of" in said


def test_a_server_with_a_wrong_value_ends_and_says_so_instead_of_failing_each_request(configure: Configure) -> None:
    server = Server(
        configure(),
        ["uvicorn", "served_app:app", "--app-dir", str(HERE), "--port", "{port}"],
        INFERENCE_LOGGING_CHUNKS="bogus",
    )
    try:
        assert server.process.wait(60) != 0
        assert "chunks='bogus' (environment INFERENCE_LOGGING_CHUNKS): must be one of" in server.stop()
    finally:
        server.end()


def test_without_lifespan_a_wrong_value_does_not_stop_the_serving_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_CHUNKS", "bogus")
    messages = answer(b"x")
    middleware = InferenceLoggingMiddleware(replying(*messages))
    for _ in range(3):
        client = Client()
        serve_one(middleware, http_scope(), client)
        assert client.sent == messages
    assert capfd.readouterr().err.count("chunks='bogus'") == 1


def test_without_lifespan_the_logger_opens_at_the_first_request(configure: Configure) -> None:
    config = configure()
    middleware = InferenceLoggingMiddleware(replying(*answer(b"x")), config=config)
    assert not config.resolved_queue_directory.exists()
    client = Client()
    asyncio.run(middleware(http_scope(), client.receive, client.send))
    logger = Logger.shared(config)
    assert logger.flush()
    assert len(read_records(config.directory, "request")) == 1
    logger.close()


def test_the_same_application_can_be_started_again_in_the_same_process(configure: Configure) -> None:
    app, config = FastAPI(), configure()
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    app.get("/")(lambda: "served")
    for _ in range(3):
        with TestClient(app) as client:
            assert client.get("/").json() == "served"
    records = read_records(config.directory, "request")
    assert len({record["boot_id"] for record in records}) == len(records) == 3
    assert len(footers(config.directory)) == 3


def test_two_applications_of_one_process_share_one_logger_and_the_last_one_closes_it(configure: Configure) -> None:
    config = configure()
    apps = [FastAPI(), FastAPI()]
    for app in apps:
        app.add_middleware(InferenceLoggingMiddleware, config=config)
        app.get("/")(lambda: "served")
    with TestClient(apps[0]) as first:
        with TestClient(apps[1]) as second:
            second.get("/")
        first.get("/")
    records = read_records(config.directory, "request")
    assert [record["seq"] for record in records] == [0, 1]
    assert len({record["boot_id"] for record in records}) == 1


def test_a_drain_that_passes_its_deadline_ends_and_the_next_start_writes_what_was_left(configure: Configure) -> None:
    app, config = FastAPI(), configure(listener="external", drain_deadline_s=0)
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    app.get("/")(lambda: "served")
    with TestClient(app) as client:
        for _ in range(5):
            client.get("/")
    assert not config.directory.exists()
    with Logger(configure()) as next_start:
        while next_start.backlog_records():
            assert next_start.flush()
    assert len(read_records(config.directory, "request")) == 5


APPLICATION_THAT_LOGS_AT_IMPORT = """
from inference_logging import Config, InferenceLoggingMiddleware, get_logger

get_logger("app").info("imported")


async def answer(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})
    else:
        for part in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{part}.complete"})


"""


@pytest.mark.parametrize("own", [{}, {"directory": "own/segments", "queue_directory": "own/queues"}])
def test_a_record_at_import_does_not_keep_the_process_from_ending_in_order(
    configure: Configure, tmp_path: Path, own: dict[str, str]
) -> None:
    config = configure()
    own = {name: str(tmp_path / path) for name, path in own.items()}
    application = f"{APPLICATION_THAT_LOGS_AT_IMPORT}app = InferenceLoggingMiddleware(answer, Config(**{own}))\n"
    (tmp_path / "app.py").write_text(application, encoding="utf-8")
    server = Server(config, ["uvicorn", "app:app", "--app-dir", str(tmp_path), "--port", "{port}"])
    try:
        server.wait_until_ready()
        server.get("/")
        server.stop()
    finally:
        server.end()
    directories = {config.directory, Path(own.get("directory", config.directory))}
    for directory in directories:
        ends = read_records(directory, "process.ended")
        assert [end["how"] for end in ends] == ["closed"], directory
        assert len(footers(directory)) == 1
    assert sum(len(read_records(directory, "log")) for directory in directories) == 1
    assert sum(len(read_records(directory, "request")) for directory in directories) == 1
