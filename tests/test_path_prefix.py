"""An application below a path prefix (`root_path`): its own routes, and the patterns that name its paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import Config, InferenceLoggingMiddleware
from tests.support import Recorded, answer, http_scope, replying

Configure = Callable[..., Config]


def below(path: str, root_path: object = "/llm") -> dict[str, Any]:
    """Return the scope of a request whose proxy has not stripped the prefix."""
    return {**http_scope(path), "root_path": root_path}


@pytest.mark.parametrize("path", ["/health/logging", "/health/logging/live", "/metrics/logging"])
def test_routes_of_the_middleware_answer_with_and_without_the_prefix(configure: Configure, path: str) -> None:
    app = FastAPI()
    config = configure(liveness_path="/health/logging/live", metrics_path="/metrics/logging")
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    with TestClient(app, root_path="/llm") as client:
        assert client.get(path).status_code == client.get(f"/llm{path}").status_code == 200
        assert client.get(f"/llmx{path}").status_code == client.get(f"/other{path}").status_code == 404


def test_the_servers_own_health_route_is_wrapped_below_the_prefix(configure: Configure) -> None:
    recorded = Recorded(configure(wrap_health_path="/health"))
    start, _ = recorded.serve(replying(*answer(b"")), below("/llm/health"))
    recorded.close()
    assert b"inference-logging-state" in dict(start["headers"])


@pytest.mark.parametrize("skipped", ["/ready", "/llm/ready", "/ready/*"])
def test_a_path_that_is_skipped_is_skipped_below_the_prefix(configure: Configure, skipped: str) -> None:
    recorded = Recorded(configure(skip_paths=[skipped]))
    end = "/x" if skipped.endswith("*") else ""
    for path in (f"/llm/ready{end}", f"/other/ready{end}", f"/llmx/ready{end}"):
        recorded.serve(replying(*answer(b"")), below(path))
    found = [record["url.path"] for record in recorded.records("request")]
    recorded.close()
    assert found == [f"/other/ready{end}", f"/llmx/ready{end}"]


def test_a_route_has_its_ratio_below_the_prefix_and_one_with_the_prefix_goes_first(configure: Configure) -> None:
    recorded = Recorded(configure(sample_routes={"/llm/b": 1.0, "/a": 0.0, "/b": 0.0}))
    for path in ("/llm/a", "/llm/b", "/llm/c"):
        recorded.serve(replying(*answer(b"")), below(path))
    found = [record["url.path"] for record in recorded.records("request")]
    recorded.close()
    assert found == ["/llm/b", "/llm/c"]


@pytest.mark.parametrize("root_path", [None, 7, b"/llm", "", "/", "/llm/x/y"])
def test_a_prefix_that_is_none_changes_nothing(recorded: Recorded, root_path: object) -> None:
    recorded.serve(replying(*answer(b"")), below("/llm/x", root_path))
    assert recorded.request()["url.path"] == "/llm/x"
