"""The entry point that SGLang calls: its HTTP server gets the middleware where the environment asks for it.

SGLang's package asks for CUDA. `sglang_stand_in` has what the plugin touches, in the order of SGLang 0.5.23's source:
`load_plugins` of `sglang.srt.plugins`, its registry of hooks, and `_setup_and_run_http_server`. The servers are real.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config, InferenceLoggingMiddleware
from inference_logging.record.run.sglang import plugin
from tests.kit.servers import Server
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).parent / "sglang_stand_in"
HEADLINE = '[project.entry-points."sglang.srt.plugins"]'
KEY = {"Authorization": "Bearer key"}
MODES = {
    "uvicorn": ["--api-key=key"],
    "uvicorn, two workers": ["--tokenizer-worker-num=2"],
    "granian": ["--enable-http2", "--api-key=key"],
    "granian, two workers": ["--enable-http2", "--tokenizer-worker-num=2"],
}


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """Return the path of the stand-in and of a distribution with the entry point that pyproject.toml declares."""
    declared = (ROOT / "pyproject.toml").read_text("utf-8").partition(HEADLINE)[2].partition("\n\n")[0].strip()
    about = tmp_path / "site" / "declared-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 0\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{declared.replace(chr(34), '')}\n", "utf-8")
    return os.pathsep.join([str(STAND_IN), str(about.parent), str(ROOT)])


@contextmanager
def serving(config: Config, path: str, *command: str, **environment: str) -> Iterator[Server]:
    """Run the server until it answers, and then to its end."""
    server = Server(config, [*command, "--port={port}"], PYTHONPATH=path, **environment)
    try:
        wait_until(lambda: _answers(server), "the server to be ready", 120)
        yield server
    finally:
        server.end()


def _answers(server: Server) -> bool:
    assert server.process.poll() is None, b"".join(server.output).decode()
    try:
        return httpx.get(f"{server.url}/health").status_code == 200
    except httpx.TransportError:
        return False


def asked(config: Config, server: Server) -> list[Any]:
    """Send requests, stop the server, and return status and outcome of those on record."""
    for _ in range(3):
        assert "data: 2" in httpx.post(f"{server.url}/generate", headers=KEY, timeout=120).text
    httpx.post(f"{server.url}/generate", timeout=120)
    server.stop()
    wait_until(lambda: len(_recorded(config)) >= 4, "the records")
    return _recorded(config)


def _recorded(config: Config) -> list[Any]:
    requests = read_records(config.directory, "request")
    return [(one["http.response.status_code"], one["outcome"]) for one in requests if one["url.path"] == "/generate"]


@pytest.mark.servers
@pytest.mark.parametrize("mode", MODES)
def test_each_request_is_recorded_once_by_the_entry_point_alone(
    configure: Configure, installed: str, mode: str
) -> None:
    config = configure()
    with serving(config, installed, "sglang.launch_server", *MODES[mode]) as server:
        found = asked(config, server)
    # The check of keys, which SGLang has in one process only, answers inside of the middleware.
    last = (401, "ok") if "--api-key=key" in MODES[mode] else (200, "ok")
    assert sorted(found) == sorted([(200, "ok")] * 3 + [last])


@pytest.mark.servers
@pytest.mark.parametrize("mode", MODES)
def test_by_inference_logging_run_each_request_is_recorded_once_too(
    configure: Configure, installed: str, mode: str
) -> None:
    config = configure()
    command = ["inference_logging.cli.main", "run", "--", sys.executable, "-m", "sglang.launch_server", *MODES[mode]]
    with serving(config, installed, *command) as server:
        assert len(asked(config, server)) == 4


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Any]]]:
    """Import the stand-in here, without any variable of the environment; return the hooks that are registered."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    for name in (*plugin.VARIABLES, plugin.APP_PATH, "SGLANG_RUST_SERVER"):
        monkeypatch.delenv(name, raising=False)
    from sglang.srt.plugins.hook_registry import HookRegistry

    yield HookRegistry.hooks
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


def test_an_installed_package_alone_changes_nothing(
    hooks: dict[str, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.register()
    assert hooks == {}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("variable", plugin.VARIABLES)
def test_either_variable_asks_for_records(
    hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/somewhere")
    plugin.register()
    assert list(hooks) == ["sglang.srt.utils.common.set_uvicorn_logging_configs"]


def test_what_another_version_lacks_is_reported_by_name(
    hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(plugin.VARIABLES[0], "/somewhere")
    from sglang.srt.utils import common

    monkeypatch.delattr(common, "set_uvicorn_logging_configs")
    plugin.register()
    assert hooks == {}
    assert "no sglang.srt.utils.common.set_uvicorn_logging_configs" in capsys.readouterr().err


def test_a_server_in_rust_is_reported(
    hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(plugin.VARIABLES[0], "/somewhere")
    monkeypatch.setenv("SGLANG_RUST_SERVER", "True")
    plugin.register()
    assert hooks == {}
    assert "served by Rust" in capsys.readouterr().err


def test_an_application_path_of_the_users_own_stays(
    hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLES[0], "/somewhere")
    monkeypatch.setenv(plugin.APP_PATH, "mine:app")
    plugin.register()
    ((hook,),) = hooks.values()
    hook()
    assert os.environ[plugin.APP_PATH] == "mine:app"


def test_a_plugin_that_is_found_twice_adds_one_middleware(
    hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLES[0], "/somewhere")
    monkeypatch.setenv(plugin.APP_PATH, "mine:app")
    plugin.register()
    plugin.register()
    for hook in hooks.popitem()[1]:
        hook()
    from sglang.srt.entrypoints.http_server import app

    assert [entry.cls for entry in app.user_middleware].count(InferenceLoggingMiddleware) == 1
