"""A real Phoenix, and the spans that its API reports."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import free_port
from tests.shipping.programs import Program

PYTHON: Final = Path(__file__).parents[2] / ".venv-phoenix" / "bin" / "python"
_COUNT: Final = "{ projects { edges { node { recordCount } } } }"
_QUERY: Final = """
query ($after: String) { projects { edges { node { spans(first: 1000, after: $after) {
  pageInfo { endCursor hasNextPage }
  edges { node {
    spanId name spanKind parentId latencyMs statusCode statusMessage numChildSpans trace { traceId }
    tokenCountPrompt tokenCountCompletion tokenCountTotal
    input { value } output { value } attributes events { name }
  } }
} } } } }
"""


class Phoenix(Program):
    """The server; its database is in ``directory``."""

    def __init__(self, directory: Path) -> None:
        if not PYTHON.with_name("phoenix").exists():
            pytest.skip(f"no {PYTHON.parents[1].name}: `make phoenix` sets it up")
        directory.mkdir()
        self._port = free_port()
        environment = {
            "PHOENIX_WORKING_DIR": str(directory),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self._port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
            "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        }
        command: list[str | Path] = [PYTHON, "-m", "phoenix.server.main", "serve"]
        super().__init__(command, directory / "log", self._answers, environment)

    @property
    def url(self) -> str:
        """What ``ship_to`` says."""
        return f"otlp+http://127.0.0.1:{self._port}?signal=traces"

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/healthz", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def count(self) -> int:
        """Return how many spans it has stored, which it does after it has answered."""
        (project,) = self._asked(_COUNT)["projects"]["edges"]
        return int(project["node"]["recordCount"])

    def spans(self) -> list[dict[str, Any]]:
        """Return all spans of its one project as Phoenix shows them; ``attributes`` are those that it has read."""
        found: list[dict[str, Any]] = []
        after = None
        while True:
            (project,) = self._asked(_QUERY, after=after)["projects"]["edges"]
            page = project["node"]["spans"]
            nodes = [edge["node"] for edge in page["edges"]]
            found += [{**node, "attributes": json.loads(node["attributes"])} for node in nodes]
            if not page["pageInfo"]["hasNextPage"]:
                return found
            after = page["pageInfo"]["endCursor"]

    def _asked(self, query: str, **variables: Any) -> dict[str, Any]:
        content = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/graphql", content, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered: dict[str, Any] = json.load(answer)
        assert "errors" not in answered, answered["errors"]
        data: dict[str, Any] = answered["data"]
        return data
