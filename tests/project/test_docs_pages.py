"""Pages of docs and examples do what they say: their programs run as they stand, from an empty folder on."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from inference_logging import InferenceLoggingMiddleware, Logger, OpenError
from inference_logging.testing import capture_records
from tests.kit.servers import free_port
from tests.kit.shown import assert_prints, blocks
from tests.kit.signatures import Configure
from tests.kit.sinks import fill, small_file_system
from tests.kit.support import read_records, wait_until

DOCS = Path(__file__).parents[2] / "docs"
FRAMEWORKS = ("starlette", "litestar", "django")
DRIVER = """
import asyncio

import httpx


async def ask() -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/hello/ann")).text == "hello"
        assert (await client.get("/nope")).status_code == 404


asyncio.run(ask())
"""
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (on Debian: apt-get install curl)")


def blocks_in(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def recorded(code: str, event: str, place: Path) -> list[dict[str, Any]]:
    """Run a program from an empty folder; return what it has put into `logs` of an event."""
    (place / "program.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(place / "queues")}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return read_records(place / "logs", event)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("of", "attributes"),
    [
        ("dictConfig", {"amount": 12}),
        ("structlog.configure", {"user": "ann", "amount": 12}),
        ("logger.bind", {"user": "ann", "amount": 12}),
    ],
)
def test_other_ways_of_logging_keep_their_fields(of: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    (code,) = (block for block in blocks_in("application-records.md", "python") if of in block)
    (record,) = recorded(code, "log", tmp_path)
    assert record["message"] == ("paid 12" if "loguru" in code else "paid")
    assert (record["logger"], record["severity_text"]) == ("__main__" if "loguru" in code else "cart", "INFO")
    assert attributes.items() <= record["attributes"].items()


@pytest.mark.servers
def test_the_test_of_an_application_passes(tmp_path: Path) -> None:
    application, test = blocks_in("fastapi.md", "python")
    (tmp_path / "app.py").write_text(application, encoding="utf-8")
    (tmp_path / "test_app.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert not (tmp_path / "logs").exists()


def test_the_record_of_the_audit_page_is_in_its_lane(tmp_path: Path) -> None:
    (code,) = blocks_in("audit.md", "python")
    asked = DRIVER.replace("/hello/ann", "/decide?user=ann").replace('"hello"', "'{\"allowed\":true}'")
    assert recorded(code + asked, "policy.decision", tmp_path) == []
    (decided,) = read_records(tmp_path / "logs" / "audit", "policy.decision")
    assert (decided["user"], decided["allowed"]) == ("ann", True)


def test_what_the_page_of_texts_replaces_is_replaced_so(tmp_path: Path) -> None:
    page = (DOCS / "texts.md").read_text(encoding="utf-8")
    (tmp_path / "logging.yaml").write_text(blocks_in("texts.md", "yaml")[0], encoding="utf-8")
    (makes_key,) = re.findall(r"`(head [^`]*> hash\.key)`", page)
    subprocess.run(["sh", "-c", makes_key], cwd=tmp_path, check=True)
    shown = dict(re.findall(r"`([^`]+)` becomes `(\[[^`]+\])`", page))
    code = (
        "from inference_logging import Config, Logger, get_logger\n"
        "with Logger(Config(config_file='logging.yaml', capture_input='hash', capture_hash_key_file='hash.key')):\n"
        f"    get_logger('app').info({' '.join(shown)!r}, metadata={{'user': 'ann'}}, password='x')\n"
    )
    (record,) = recorded(code, "log", tmp_path)
    assert record["message"] == " ".join(shown.values())
    assert record["attributes"] == {"metadata": {"user": "[redacted:field]"}, "password": "[redacted:field]"}


def test_the_outcome_of_a_status_is_the_one_that_the_page_says() -> None:
    page = " ".join((DOCS / "records.md").read_text(encoding="utf-8").split())
    (sentence,) = re.findall(r"the status decides: ([^.]*)\.", page)
    said = [
        (int(status), part) for part in sentence.split(", and ")[0].split(", ") for status in re.findall(r"\d+", part)
    ]
    said += [(int(status), sentence.split(", and ")[1]) for status in ("404", "499")]
    assert {status for status, _ in said} == {404, 408, 499, 500, 504}
    for status, words in said:
        app = Starlette(routes=[Route("/", lambda _, status=status: Response(status_code=status))])
        with capture_records() as records, TestClient(InferenceLoggingMiddleware(app)) as client:
            client.get("/")
        assert f"`{records.requests[0]['outcome']}`" in words, status


def test_errors_that_troubleshooting_quotes_are_those_that_a_start_raises(configure: Configure, tmp_path: Path) -> None:
    section = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").partition("## The start fails")[2]
    quoted = re.findall(r"^\* `([^`]+ [^`]+)`:", section.partition("\n## ")[0], re.MULTILINE)
    with Logger(configure()), pytest.raises(OpenError) as different:
        Logger(configure(sink="null"))
    with small_file_system(tmp_path / "shm") as shared:
        fill(shared)
        with pytest.raises(OpenError) as full:
            Logger(configure(queue_directory=shared / "queues"))
    for quote, error in zip(quoted, (full, different), strict=True):
        assert all(part.strip() in str(error.value) for part in quote.split("…")), error.value


def test_the_page_has_every_extra() -> None:
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    table = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = re.findall(r"^(\w+) = \[", table, re.MULTILINE)
    page = (DOCS / "install.md").read_text(encoding="utf-8").partition("| extra |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(extras)


@pytest.mark.servers
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_is_on_record(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install {name}")
    code = blocks_in("asgi-frameworks.md", "python")[FRAMEWORKS.index(name)]
    assert f"from {name}" in code
    found, missing = recorded(code + DRIVER, "request", tmp_path)
    assert (found["url.path"], found["http.response.status_code"], found["outcome"]) == ("/hello/ann", 200, "ok")
    assert found.get("http.route") == (None if name == "django" else "/hello/{name}")
    assert missing["http.response.status_code"] == 404


@pytest.mark.servers
def test_the_log_file_of_uvicorn_puts_its_messages_on_record(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(blocks_in("access-logs.md", "json")[0], encoding="utf-8")
    root = "import logging\nimport inference_logging\nlogging.basicConfig(handlers=[inference_logging.Handler()])\n"
    (tmp_path / "app.py").write_text(root + blocks_in("fastapi.md", "python")[0], encoding="utf-8")
    (command,) = (line for line in blocks_in("access-logs.md", "sh") if line.startswith("uvicorn "))
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    server = subprocess.Popen(
        [sys.executable, "-m", *command.split(), "--port", str(free_port())], cwd=tmp_path, env=environment
    )

    def messages() -> list[str]:
        found = read_records(tmp_path / "logs", "log") if (tmp_path / "logs").is_dir() else []
        return [record["message"] for record in found if record["logger"] == "uvicorn.error"]

    try:
        wait_until(lambda: "Application startup complete." in messages(), "its message")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    assert any(message.startswith("Started server process") for message in messages())
    assert messages().count("Application startup complete.") == 1


@pytest.mark.servers
def test_a_load_of_locust_is_on_record_request_by_request(tmp_path: Path) -> None:
    (tmp_path / "locustfile.py").write_text(titled("load-tests.md", "locustfile.py"), encoding="utf-8")
    (tmp_path / "app.py").write_text(blocks_in("fastapi.md", "python")[0], encoding="utf-8")
    _, _, serve, *_, load = titled("load-tests.md", "with and without").splitlines()
    variable, *command = serve.removesuffix(" &").split()
    assert (variable, command[0], load.split()[0]) == ("INFERENCE_LOGGING_DIRECTORY=logs", "uvicorn", "locust")
    port = free_port()
    queues = {"INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    environment = {**os.environ, **dict([variable.split("=")]), **queues}
    serve_here = [sys.executable, "-m", *(word.replace("8000", str(port)) for word in command)]
    server = subprocess.Popen(serve_here, cwd=tmp_path, env=environment)
    try:
        wait_until(lambda: is_served(port), "an answer")
        load_here = load.replace("8000", str(port)).replace("30s", "10s").split()
        *load_here, _, to = load_here
        with (tmp_path / to).open("wb") as file:
            subprocess.run([sys.executable, "-m", *load_here], cwd=tmp_path, check=True, timeout=120, stdout=file)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    count = titled("load-tests.md", "count").splitlines()[0]
    counted = subprocess.run(["sh", "-c", count], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    requests, users = int(counted), 16
    assert requests > 0
    # One is that of `is_served`.
    assert requests <= len(read_records(tmp_path / "logs", "request")) - 1 <= requests + users


def titled(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def is_served(port: int) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/hello", timeout=10).close()
        return True
    return False


EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def readme(name: str) -> str:
    return (EXAMPLES / name / "README.md").read_text(encoding="utf-8")


def follow(name: str, place: Path, **environment: str) -> str:
    """Follow a README in a copy of its folder; return what is printed."""
    folder = shutil.copytree(EXAMPLES / name, place / name)
    scripts = place / "bin"
    scripts.mkdir()
    for command, module in (
        ("python", ""),
        ("inference-logging", "-m inference_logging.cli.main"),
        ("uvicorn", "-m uvicorn"),
    ):
        (scripts / command).write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {module} "$@"\n')
        (scripts / command).chmod(0o755)
    script = "set -eu\n" + "".join(blocks(readme(name), "sh")).replace("8000", str(free_port()))
    own = {"PATH": f"{scripts}:{os.environ['PATH']}", "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(place / "queues")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **own, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_shown(name: str, output: str) -> None:
    assert_prints("".join(blocks(readme(name), "text")).splitlines(), output)


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_says_in_forty_lines_what_it_shows_and_how_to_run_it(name: str) -> None:
    text = readme(name)
    assert len(text.splitlines()) <= 40
    assert re.search(r"^```sh(ell)?\n", text, flags=re.MULTILINE)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    sentences = re.split(r"(?<=[.:;?!])\s+|\n\n", prose)
    assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_the_index_names_each_example() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\)", index, flags=re.MULTILINE)) == FOLDERS


@pytest.mark.servers
@pytest.mark.parametrize("name", ["application_records", "audit_records", "bare_logger"])
def test_an_example_prints_what_its_readme_shows(name: str, tmp_path: Path) -> None:
    assert_shown(name, follow(name, tmp_path))


@pytest.mark.servers
@needs_curl
def test_the_server_prints_what_its_readme_shows(tmp_path: Path) -> None:
    assert_shown("fastapi", follow("fastapi", tmp_path))


@pytest.mark.servers
@pytest.mark.skipif(
    shutil.which("pkg-config") is None, reason="needs pkg-config (on Debian: apt-get install pkg-config)"
)
def test_the_sensor_prints_what_its_readme_shows(installed: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "dist" / "c"
    prefix.parent.mkdir()
    prefix.symlink_to(installed)
    (tmp_path / "examples").mkdir()
    assert_shown("c_sensor", follow("c_sensor", tmp_path / "examples"))


ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Follow the tutorial in an empty folder, all but the installation."""
    place = tmp_path_factory.mktemp("tutorial")
    (application,) = blocks(TUTORIAL, "python")
    (place / "app.py").write_text(application, encoding="utf-8")
    scripts = place / "bin"
    scripts.mkdir()
    for name, module in (("inference-logging", "inference_logging.cli.main"), ("uvicorn", "uvicorn")):
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore -m {module} "$@"\n')
        (scripts / name).chmod(0o755)
    lines = "".join(block for block in blocks(TUTORIAL, "sh") if "pip install" not in block)
    script = "set -eu\n" + lines.replace("8000", str(free_port()))
    own = {"PATH": f"{scripts}:{os.environ['PATH']}", "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(place / "queues")}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=place,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.servers
@needs_curl
def test_every_command_of_it_succeeds(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.servers
@needs_curl
def test_the_first_request_and_the_record_inside_it_are_shown(done: subprocess.CompletedProcess[str]) -> None:
    assert "word 9" in done.stdout
    assert "asked for words" in done.stdout
    assert '"http.route":"/words/{count}"' in done.stdout.replace('": "', '":"')


@pytest.mark.servers
@needs_curl
def test_the_killed_request_is_on_record_and_nothing_is_missing(done: subprocess.CompletedProcess[str]) -> None:
    assert "process_died" in done.stdout
    assert "\nBALANCED: every record of 1 process is accounted for.\n" in done.stdout


@pytest.mark.servers
@needs_curl
def test_recover_and_verify_print_what_is_shown(done: subprocess.CompletedProcess[str]) -> None:
    of_a_terminal = ("19:",)  # `tail` has another form in a pipe
    lines = [line for block in blocks(TUTORIAL, "text") for line in block.splitlines()]
    lines = [line.replace("/dev/shm/inference_logging-0-inference-11cd8094032c", "…") for line in lines if line]
    assert_prints([line for line in lines if not line.startswith(of_a_terminal)], done.stdout)
