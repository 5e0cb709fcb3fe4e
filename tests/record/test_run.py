"""`inference-logging run`: servers that know nothing of logging, each request on record; a port that stays open."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import inference_logging.record.run
from inference_logging import Config
from inference_logging.record.asgi.bounded_server import MOST_CONNECTIONS, BoundedServer, serve
from tests.kit.command_line import run
from tests.kit.servers import Server, free_port
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

PLAIN = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def index(request):
    return PlainTextResponse("here")


app = Starlette(routes=[Route("/", index)])


def make():
    return app
"""
WITH_IT = f"from inference_logging import InferenceLoggingMiddleware as Ours\n{PLAIN}\napp.add_middleware(Ours)\n"
SCRIPT = "import sys\nimport uvicorn\n\nuvicorn.run('plain:app', port=int(sys.argv[1]))\n"
SERVERS = {
    "uvicorn": ["-m", "uvicorn", "plain:app", "--port", "{port}"],
    "uvicorn, a factory": ["-m", "uvicorn", "plain:make", "--factory", "--port", "{port}", "--no-proxy-headers"],
    "uvicorn, two workers": ["-m", "uvicorn", "plain:app", "--workers", "2", "--port", "{port}"],
    "uvicorn.run": ["script.py", "{port}"],
    "hypercorn": ["-m", "hypercorn", "plain:app", "--bind", "127.0.0.1:{port}"],
    "granian": ["-m", "granian", "--interface", "asgi", "--port", "{port}", "plain:app"],
    "granian without lifespan": ["-m", "granian", "--interface", "asginl", "--port", "{port}", "plain:app"],
    "gunicorn": [*("-m", "gunicorn", "-k", "uvicorn.workers.UvicornWorker", "--bind", "127.0.0.1:{port}", "plain:app")],
    "gunicorn's own worker": ["-m", "gunicorn", "-k", "asgi", "-w", "2", "--bind", "127.0.0.1:{port}", "plain:app"],
}


@contextmanager
def running(config: Config, folder: Path, arguments: list[str]) -> Iterator[Server]:
    """Run a server of the modules in ``folder`` by `inference-logging run`, until it answers and then to its end."""
    command = ["inference_logging.cli.main", "run", "--", sys.executable, "-W", "ignore", *arguments]
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    server = Server(config, command, PYTHONPATH=path)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "application"
    folder.mkdir()
    (folder / "plain.py").write_text(PLAIN)
    (folder / "script.py").write_text(SCRIPT)
    return folder


@pytest.mark.servers
@pytest.mark.parametrize("server", SERVERS)
def test_requests_of_an_application_that_knows_nothing_are_recorded(
    configure: Configure, folder: Path, server: str
) -> None:
    config = configure()
    arguments = [str(folder / part) if part == "script.py" else part for part in SERVERS[server]]
    with running(config, folder, arguments) as served:
        for number in range(5):
            assert httpx.get(f"{served.url}/?n={number}", timeout=120).text == "here"
        said = served.stop()
    wait_until(lambda: len(read_records(config.directory, "request")) >= 5, "the records")
    requests = read_records(config.directory, "request")
    assert [(request["url.path"], request["outcome"]) for request in requests] == [("/", "ok")] * 5
    assert "serves starlette.applications.Starlette: its requests are recorded" in said


@pytest.mark.servers
@pytest.mark.parametrize(("workers", "code"), [("1", 3), ("2", 0)])
def test_a_server_that_cannot_start_returns_what_uvicorn_returns(folder: Path, workers: str, code: int) -> None:
    """The exit code says nothing of its workers: docs/fastapi.md."""
    server = [sys.executable, *SERVERS["uvicorn"], "--workers", workers]
    command = [part.replace("{port}", str(free_port())) for part in server]
    unwritable = {"INFERENCE_LOGGING_DIRECTORY": str(folder / "plain.py" / "logs"), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "inference_logging.cli.main", "run", "--", *command],
        env={**os.environ, **unwritable},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Not a directory" in done.stderr
    assert done.returncode == code


@pytest.mark.servers
def test_an_application_with_the_middleware_records_each_request_once(configure: Configure, folder: Path) -> None:
    (folder / "plain.py").write_text(WITH_IT)
    config = configure()
    with running(config, folder, SERVERS["uvicorn"]) as served:
        httpx.get(served.url, timeout=120)
        said = served.stop()
    assert len(read_records(config.directory, "request")) == 1
    assert "which has the middleware already" in said


@pytest.mark.servers
def test_behind_a_proxy_the_client_is_the_one_that_the_proxy_reports(configure: Configure, folder: Path) -> None:
    config = configure()
    with running(config, folder, SERVERS["uvicorn"]) as served:
        httpx.get(served.url, headers={"X-Forwarded-For": "192.0.2.7"}, timeout=120)
        served.stop()
    assert [request["client.address"] for request in read_records(config.directory, "request")] == ["192.0.2.7"]


@pytest.mark.servers
def test_the_health_route_answers_below_the_prefix_of_the_application(configure: Configure, folder: Path) -> None:
    (folder / "plain.py").write_text("from fastapi import FastAPI\napp = FastAPI(root_path='/llm')\n")
    with running(configure(), folder, SERVERS["uvicorn"]) as served:
        urls = [f"{served.url}{prefix}/health/logging" for prefix in ("", "/llm", "/other")]
        found = [httpx.get(url, timeout=120).status_code for url in urls]
        served.stop()
    assert found == [200, 200, 404]


def test_a_python_without_the_package_says_so_and_serves(tmp_path: Path) -> None:
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").touch()
    (tmp_path / "uvicorn" / "config.py").write_text("Config = 'as it was'\n")
    code = "import sys, uvicorn.config; print(uvicorn.config.Config, 'inference_logging' in sys.modules)"
    ended = _python_of_run(code, f"{tmp_path}", "-c")
    assert ended.stdout == "as it was False\n"
    assert "requests of uvicorn are not recorded" in ended.stderr
    assert "No module named 'inference_logging'" in ended.stderr


def test_a_sitecustomize_that_was_there_before_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the one before')\n")
    assert (
        _python_of_run("print('then the program')", f"{tmp_path}", "-c").stdout == "the one before\nthen the program\n"
    )


def test_without_a_server_nothing_is_imported_and_nothing_is_said() -> None:
    ended = _python_of_run("import sys; print([name for name in sys.modules if 'inference' in name])", "", "-c")
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_program_that_is_not_there_is_an_error_by_name() -> None:
    ended = run("run", "--", "no-such-program", "--port", "1")
    assert (ended.code, ended.err) == (2, "Error: COMMAND='no-such-program': there is no such program\n")


def test_a_wrong_configuration_is_reported_before_the_server_starts(tmp_path: Path) -> None:
    ended = run("run", "--config", str(tmp_path / "none.yaml"), "--", sys.executable, "-c", "print('started')")
    assert ended.code == 2
    assert "none.yaml" in ended.err


def _python_of_run(code: str, path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code as a process of the command runs it, without the packages of this environment."""
    folder = Path(inference_logging.record.run.__file__).parent / "path"
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), path))), "PATH": os.environ["PATH"]}
    # What an environment's link leads to: sys._base_executable is that from 3.11 on only.
    base = Path(sys.executable).resolve()
    return subprocess.run([base, *options, code], env=environment, capture_output=True, text=True, check=True, cwd="/")


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


@pytest.fixture
def server() -> Iterator[BoundedServer]:
    server = serve("127.0.0.1", 0, application)
    yield server
    server.shutdown()
    server.server_close()


def get(server: BoundedServer) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_half_open_connections_take_a_bounded_number_of_threads_and_others_are_answered(
    server: BoundedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(10 * MOST_CONNECTIONS):
            half_open = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=120))
            half_open.sendall(b"GET /hea" if number % 2 else b"")
            if number % MOST_CONNECTIONS == 0:
                assert get(server) == b"/health"
            assert threading.active_count() <= before + MOST_CONNECTIONS
        assert get(server) == b"/health"
        assert threading.active_count() <= before + MOST_CONNECTIONS
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_goes_away_frees_its_place(server: BoundedServer) -> None:
    for _ in range(3 * MOST_CONNECTIONS):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=120).close()
    assert get(server) == b"/health"


def test_a_request_without_a_version_is_refused(server: BoundedServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=120) as connection:
        connection.sendall(b"GET /health\r\n\r\n")
        with connection.makefile("rb") as answer:
            assert b"the request has no version of HTTP" in answer.read()
    assert get(server) == b"/health"
