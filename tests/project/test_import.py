"""What an import loads, and what it leaves for later; which distribution is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inference_logging
from inference_logging.errors import MissingExtraError
from inference_logging.record._foreign import foreign

ROOT = Path(__file__).parents[2]
PACKAGE = Path(inference_logging.__file__).parent  # the checkout's, or the installed one
OF_A_CONFIGURATION = {"pydantic", "pydantic_core", "yaml", "inference_logging.record.config"}
HEAVY = OF_A_CONFIGURATION | {"asyncio", "importlib.metadata", "ssl", "http", "typing_extensions", "rich", "duckdb"}


SERVED = """
import asyncio
from inference_logging import InferenceLoggingMiddleware

async def app(scope, receive, send):
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})

async def serve(requests):
    middleware, messages, statuses = InferenceLoggingMiddleware(app), asyncio.Queue(), []
    async def send(message):
        statuses.append(message.get("status"))
    messages.put_nowait({"type": "lifespan.startup"})
    lifespan = asyncio.create_task(middleware({"type": "lifespan"}, messages.get, send))
    while not statuses:
        await asyncio.sleep(0)
    for _ in range(requests):
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
        await middleware(scope, messages.get, send)
    messages.put_nowait({"type": "lifespan.shutdown"})
    await lifespan
    assert statuses.count(200) == requests
"""
"""A server with a lifespan, whose requests come after its startup."""


def loaded(code: str, **variables: str) -> set[str]:
    """Return what another interpreter has imported after ``code``."""
    reported = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; before = set(sys.modules)\n{code}\nimport json; print(json.dumps([*sys.modules]))",
        ],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return set(json.loads(reported.stdout.splitlines()[-1]))


def test_the_import_loads_nothing_but_the_package() -> None:
    modules = loaded("import inference_logging")
    assert {name for name in modules if name.startswith("inference_logging")} == {"inference_logging"}
    assert not modules & {*HEAVY, "typing", "inspect"}


@pytest.mark.parametrize(
    "code",
    [
        "from inference_logging import get_logger; get_logger('a')",
        "from inference_logging import Handler; Handler()",
        "from inference_logging import InferenceLoggingMiddleware, current_request; current_request()",
        "from inference_logging import AuditError, ConfigError, Json, Logger, OpenError, __version__",
    ],
)
def test_what_an_application_imports_reads_no_configuration(code: str) -> None:
    assert not loaded(code) & OF_A_CONFIGURATION


def test_the_middleware_and_the_loggers_load_neither_an_event_loop_nor_what_only_some_servers_need() -> None:
    # Without what the standard library's logging imports: from 3.14 on `inspect` as well.
    modules = loaded("from inference_logging import InferenceLoggingMiddleware, Logger, get_logger")
    modules -= loaded("import logging")
    assert not modules & {"asyncio", "ssl", "inspect", "inference_logging.record.audit"}
    assert not [name for name in modules if name.startswith("inference_logging.record.integrations.vllm")]


@pytest.mark.servers
def test_the_first_request_after_a_lifespan_imports_nothing(tmp_path: Path) -> None:
    places = {"DIRECTORY": "logs", "QUEUE_DIRECTORY": "queues"}
    variables = {f"INFERENCE_LOGGING_{name}": str(tmp_path / path) for name, path in places.items()}
    started = loaded(f"{SERVED}\nasyncio.run(serve(0))", **variables)
    served = loaded(f"{SERVED}\nasyncio.run(serve(1))", **variables)
    assert sorted(served - started) == []
    assert "inference_logging.record.config" in started


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["tail", "--help"], ["nothing-of-this-name"]])
def test_the_command_line_reads_no_configuration_for_what_needs_none(arguments: list[str]) -> None:
    code = f"""
from inference_logging.cli.main import run
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    run({arguments!r})
"""
    assert not loaded(code) & OF_A_CONFIGURATION


def test_the_version_needs_neither_metadata_nor_commands() -> None:
    modules = loaded("from inference_logging.cli.main import run; run(['--version'])")
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith("inference_logging.cli.")} - {"inference_logging.cli.main"}


def test_every_public_name_can_be_imported_and_is_the_one_of_its_module() -> None:
    for name in inference_logging.__all__:
        assert getattr(inference_logging, name) is not None
    assert set(inference_logging.__all__) <= set(dir(inference_logging))
    assert inference_logging.Logger.__module__ == "inference_logging.record.logger"
    with pytest.raises(AttributeError, match="has no attribute 'Loger'"):
        inference_logging.Loger  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_core() -> None:
    text = (ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8")
    match = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert match is not None
    assert inference_logging.__version__ == match[1]


def test_what_is_to_be_installed_is_named_as_it_is_published() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^name = "(.+)"$', project, re.MULTILINE)
    assert match is not None
    assert str(MissingExtraError("a", "b", "cli")) == f"a needs b: pip install '{match[1]}[cli]'"
    pages = (ROOT / name for name in ("README.md", "helm/README.md", "helm/values.yaml", "Dockerfile"))
    for page in (*pages, *(ROOT / "docs").glob("*.md")):
        # The one place that names it warns of it.
        text = page.read_text(encoding="utf-8").replace("Don't\n`pip install inference-logging`", "")
        assert "pip install inference" not in text, page


def installed(site: Path, *, entry_points: str = "") -> Path:
    place = site / "inference_logging-1.4.2.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: inference-logging\nVersion: 1.4.2\n")
    if entry_points:
        (place / "entry_points.txt").write_text(entry_points)
    return place


def test_another_projects_distribution_of_the_same_import_name_is_named(tmp_path: Path) -> None:
    place = installed(tmp_path / "site")
    sentence = foreign(["/nowhere", str(tmp_path / "site")])
    assert sentence is not None
    assert sentence.startswith(f"{place}: ")
    assert "inference-logging 1.4.2" in sentence
    assert "pip uninstall inference-logging" in sentence
    assert "pip install --force-reinstall inferlog" in sentence


def test_own_builds_of_any_name_are_not_foreign(tmp_path: Path) -> None:
    assert foreign() is None
    installed(tmp_path, entry_points="[console_scripts]\ninference-logging = inference_logging.cli.main:main\n")
    (tmp_path / "inferlog-0.1.0.dist-info").mkdir()
    (tmp_path / "inference_logging").mkdir()
    assert foreign([str(tmp_path)]) is None


def test_commands_and_loggers_name_it_on_stderr_and_go_on(tmp_path: Path) -> None:
    installed(tmp_path / "site")
    variables = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "INFERENCE_LOGGING_DIRECTORY": str(tmp_path / "logs"),
        "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues"),
    }
    version = subprocess.run(
        [sys.executable, "-m", "inference_logging.cli.main", "--version"],
        env=variables, capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    assert version.stdout == f"inference-logging {inference_logging.__version__}\n"
    assert version.stderr.count("inference-logging 1.4.2") == 1
    code = "from inference_logging import Logger\nfor _ in range(2):\n    with Logger(): pass"
    opened = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=180, check=True
    )
    assert opened.stderr.count("inference-logging 1.4.2") == 1


def test_every_package_of_an_extra_is_imported_by_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    needed = re.findall(r'^    "([a-z0-9-]+)', extras, re.MULTILINE)
    assert {"duckdb", "prometheus-client", "rich"} <= set(needed)
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    modules = {name: name.replace("-", "[_.]") for name in needed}
    unused = [
        name
        for name, module in modules.items()
        if not re.search(rf"^ *(import|from) {module}\b", sources, re.MULTILINE)
    ]
    assert unused == []
