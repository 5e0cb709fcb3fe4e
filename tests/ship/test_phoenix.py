"""`inference-logging ship` to a real Phoenix, which is then asked what it shows of the requests."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from inference_logging import Config
from inference_logging.ship import Shipper, Source
from inference_logging.ship.opening import open_destination
from tests.kit.segment_files import log, request, write_segment
from tests.kit.servers import free_port
from tests.kit.signatures import Configure
from tests.kit.support import wait_until
from tests.ship.programs import Program
from tests.ship.shippers import Ship
from tests.ship.stage import Load, Stage

pytestmark = pytest.mark.phoenix

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


Start = Callable[[Any], Any]
CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "asked",
    "gen_ai.response.model": "served",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.usage.input_tokens": 11,
    "gen_ai.usage.output_tokens": 5,
    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Is it raining?"}]}],
    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Yes."}]}],
    "gen_ai.response.time_to_first_chunk": 0.25,
    "engine.queued_s": 0.125,
    "engine.prefill_s": 0.125,
    "engine.decode_s": 0.25,
    "http.request.body": '{"model":"asked"}',
    "http.request.body.size": 17,
}


def ship(directory: Path, config: Config) -> None:
    """Ship all that is there; the next one begins at the beginning."""
    shipper = Shipper(Source(directory, "phoenix", once=True), open_destination(config), config)
    try:
        assert shipper.run(threading.Event(), once=True)
    finally:
        shipper.close()
    for path in (*directory.glob("*.shipped-phoenix"), directory / ".phoenix.offsets"):
        path.unlink(missing_ok=True)


def test_a_request_is_shown_with_its_parts_tokens_and_messages_and_sent_twice_it_is_one(
    start: Start, configure: Configure, tmp_path: Path
) -> None:
    phoenix: Phoenix = start(Phoenix(tmp_path / "phoenix"))
    died = {"exception.type": "E", "exception.message": "why", "error.type": "E"}
    records = [
        request(1, span_id="00000000000000a1", request_id="00000000000000a1", **CHAT),
        request(2, "error", span_id="00000000000000a2", parent_span_id="00000000000000ff", **died),
        request(3, "client_disconnect", http__response__status_code=200, span_id="00000000000000a3"),
        log(4, "no span"),
    ]
    for record in records[1:3]:
        record["request_id"] = record["span_id"]
    write_segment(tmp_path / "logs", records)
    config = configure(ship_to=phoenix.url)
    for _ in range(2):
        ship(tmp_path / "logs", config)
    # Phoenix stores in the order in which it was sent, so all before the last one is there then.
    write_segment(tmp_path / "last", [request(5, span_id="00000000000000a5", request_id="00000000000000a5")])
    ship(tmp_path / "last", config)
    wait_until(lambda: phoenix.count() >= 7, "Phoenix to store the last")
    spans = phoenix.spans()
    shown = {one["spanId"]: one for one in spans}
    assert len(spans) == len(shown) == 7
    chat, failed, left = (shown[f"00000000000000a{at}"] for at in (1, 2, 3))
    assert (chat["name"], chat["spanKind"]) == ("POST /v1/chat/completions", "llm")
    assert (chat["trace"]["traceId"], chat["latencyMs"]) == (records[0]["trace_id"], 500.0)
    assert [chat[f"tokenCount{name}"] for name in ("Prompt", "Completion", "Total")] == [11, 5, 16]
    assert (chat["input"]["value"], chat["output"]["value"]) == ("Is it raining?", "Yes.")
    assert chat["attributes"]["llm"]["model_name"] == "served"
    (asked,), (answered,) = (chat["attributes"]["llm"][f"{side}_messages"] for side in ("input", "output"))
    assert asked["message"] == {"role": "user", "content": "Is it raining?"}
    assert answered["message"] == {"role": "assistant", "content": "Yes."}
    assert chat["attributes"]["gen_ai"]["usage"]["input_tokens"] == 11
    assert [event["name"] for event in chat["events"]] == ["first_chunk"]
    parts = {one["name"]: one["latencyMs"] for one in shown.values() if one["parentId"] == chat["spanId"]}
    assert parts == {"queue": 125.0, "prefill": 125.0, "decode": 250.0}
    assert chat["numChildSpans"] == 3
    assert (failed["statusCode"], failed["statusMessage"], failed["parentId"]) == ("ERROR", "why", "00000000000000ff")
    assert [event["name"] for event in failed["events"]] == ["exception"]
    assert (left["statusCode"], [event["name"] for event in left["events"]]) == ("UNSET", ["client_disconnect"])


def test_each_request_of_a_real_server_is_shown_once_though_the_shipper_is_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    phoenix: Phoenix = start(Phoenix(tmp_path / "phoenix"))
    staged = stage(capture_input="full", capture_output="full")
    ship: Ship = start(Ship(staged.config, phoenix.url))
    offsets = staged.config.directory / ".otlp.offsets"
    assert staged.server is not None
    # One client: Phoenix takes longer to store a request than the server to answer it.
    with Load(staged.server, clients=1):
        ship.wait_until_shipped(50)
        saved = offsets.read_bytes()
        ship.wait_until_shipped(50)
        ship.kill()
        offsets.write_bytes(saved)
    ship.start()
    requests = {one["span_id"]: one for one in staged.end() if one["event_name"] == "request"}
    assert ship.stop() == 0, ship.lines
    wait_until(lambda: phoenix.count() >= len(requests), "Phoenix to store all")
    shown = phoenix.spans()
    assert sorted(one["spanId"] for one in shown) == sorted(requests)
    for span in shown:
        record = requests[span["spanId"]]
        assert (span["trace"]["traceId"], span["parentId"]) == (record["trace_id"], record["parent_span_id"])
        assert span["latencyMs"] == pytest.approx(record["duration_s"] * 1e3, abs=0.002)
        assert (span["tokenCountPrompt"] or 0) == record.get("gen_ai.usage.input_tokens", 0)
        assert (span["tokenCountCompletion"] or 0) == record.get("gen_ai.usage.output_tokens", 0)
        (asked,) = span["attributes"]["llm"]["input_messages"]
        assert asked["message"]["content"] == record["gen_ai.input.messages"][0]["parts"][0]["content"]
        answer = record.get("gen_ai.output.messages")
        assert (span["output"] or {}).get("value") == (answer[0]["parts"][0]["content"] if answer else None)
