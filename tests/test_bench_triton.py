"""The models of Triton's benchmark give back what they got, whichever way they log; no real server is asked here."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from loadtests.engine.bench_triton import BASE, COSTS, WAYS, make_models
from tests import fake_triton
from tests.support import read_records


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the model repository, for a Triton in this process."""
    fake_triton.install(monkeypatch)
    logger = types.SimpleNamespace(log_info=lambda text: _append(tmp_path / "triton.log", text))
    monkeypatch.setattr(sys.modules["triton_python_backend_utils"], "Logger", logger, raising=False)
    for name, folder in (("DIRECTORY", "logs"), ("QUEUE_DIRECTORY", "queues")):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name}", str(tmp_path / folder))
    monkeypatch.setenv("INFERENCE_LOGGING_TRITON_TENSORS", "on")
    monkeypatch.setenv("BENCH_DIRECTORY", str(tmp_path))
    make_models(tmp_path / "models")
    return tmp_path / "models"


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def answered(models: Path, name: str, times: int = 3) -> list[Any]:
    """Let the model of this name answer requests."""
    model = runpy.run_path(str(models / name / "1" / "model.py"))["TritonPythonModel"]()
    model.initialize(fake_triton.arguments())
    asked = [fake_triton.request(fake_triton.Tensor("X", [1.0, 2.0]), name=str(number)) for number in range(times)]
    answers = model.execute(asked)
    model.finalize()
    return [answer.output_tensors()[0].as_numpy().tolist() for answer in answers]


@pytest.mark.parametrize("name", [BASE, *WAYS])
def test_each_way_answers_with_what_was_sent_and_leaves_a_line_for_each_request(models: Path, name: str) -> None:
    assert answered(models, name) == [[1.0, 2.0]] * 3
    logs = models.parent / "logs"
    records = read_records(logs, "request") if logs.exists() else []
    lines = [line for path in models.parent.glob("*.log") for line in path.read_text().splitlines()]
    assert len(records) == (3 if name.startswith("ours") else 0)
    assert len(lines) == (0 if name == BASE or name.startswith("ours") else 3)


def test_the_model_that_measures_inside_has_a_figure_for_each_way(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    (taken,) = answered(models, "cost", times=1)
    assert len(taken) == len(COSTS)
    assert min(taken) > 0
