"""The entry point that vLLM calls in each of its processes: nothing while it is off, its own class found while on."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging import ConfigError
from inference_logging.record.integrations.vllm import core, plugin
from tests.kit import fake_vllm

GROUP = "vllm.stat_logger_plugins"
RECORDS = "INFERENCE_LOGGING_ENGINE_RECORDS"


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Stand for vLLM, and leave this process's finders as they were."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "model"])
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(tmp_path / "logs"))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(tmp_path / "queues"))
    return fake_vllm.install(monkeypatch)


@pytest.fixture
def rust(modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let HTTP be served by Rust; return what was followed."""
    modules["vllm.envs"].VLLM_USE_RUST_FRONTEND = True
    followed: list[str] = []
    monkeypatch.setattr(core, "follow_schedulers", lambda: followed.append("scheduler"))
    return followed


def found() -> list[importlib.metadata.EntryPoint]:
    """Return what vLLM finds."""
    return list(importlib.metadata.entry_points(group=GROUP))


def test_while_it_is_off_nothing_is_found_imported_or_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [*sys.meta_path]
    plugin.register()
    assert sys.meta_path == before
    assert not found()
    assert "inference_logging.record.integrations.vllm.engine" not in sys.modules
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == ""


def test_while_it_is_on_vllm_finds_one_class_however_often_it_registers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RECORDS, "on")
    plugin.register()
    plugin.register()
    (entry,) = found()
    assert entry.load().__name__ == "EngineStatLogger"
    assert not list(tmp_path.iterdir())


def test_the_two_entry_points_have_one_name_for_vllms_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECORDS, "on")
    plugin.register()
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    declared = re.search(r'entry-points\."vllm\.general_plugins"\]\n(\w+) = "(.+)"', project)
    assert declared is not None
    assert declared.groups() == (found()[0].name, f"{plugin.__name__}:register")


def test_packages_and_modules_are_found_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {distribution.name for distribution in importlib.metadata.distributions()}
    monkeypatch.setenv(RECORDS, "on")
    plugin.register()
    after = {distribution.name for distribution in importlib.metadata.distributions()}
    assert after - before == {"inference-logging-vllm-statistics"}
    assert importlib.metadata.version("pytest")
    assert importlib.metadata.packages_distributions()["pytest"] == ["pytest"]
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("there-is-none")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_none")


def test_a_wrong_value_ends_the_start_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECORDS, "maybe")
    with pytest.raises(ConfigError, match=r"INFERENCE_LOGGING_ENGINE_RECORDS.*maybe|engine_records.*maybe"):
        plugin.register()


@pytest.mark.parametrize("records", ["off", "on"])
def test_where_rust_serves_it_says_so_and_what_is_kept(
    rust: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], records: str
) -> None:
    monkeypatch.setenv(RECORDS, records)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--middleware", "inference_logging.InferenceLoggingMiddleware"])
    plugin.register()
    reported = capsys.readouterr().err
    assert "there are no request records" in reported
    assert ("engine.request and engine.stats records are made" in reported) == (records == "on")
    assert rust == (["scheduler"] if records == "on" else [])
    assert not found()


def test_where_rust_serves_and_nothing_is_asked_of_us_nothing_is_said(
    rust: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.register()
    assert capsys.readouterr().err == ""
    assert not rust


def test_a_process_that_the_launcher_started_says_nothing(
    rust: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RECORDS, "on")
    monkeypatch.setattr("multiprocessing.parent_process", object)
    plugin.register()
    assert capsys.readouterr().err == ""
    assert rust == ["scheduler"]


def test_other_commands_than_serve_are_python(
    rust: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RECORDS, "on")
    monkeypatch.setattr(sys, "argv", ["vllm", "bench", "serve"])
    plugin.register()
    assert capsys.readouterr().err == ""
    assert not rust
    assert len(found()) == 1
