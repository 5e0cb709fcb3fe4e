"""A real Triton: what its clients read, response by response, against what is recorded."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.integrations.triton_server import TritonServer, assert_books_balance, serving
from tests.truth.events import Stream
from tests.truth.table import Comparison

pytestmark = pytest.mark.triton

PAUSE_MS: Final = 5
TOLERANCE_S: Final = 0.001
"""Clocks have ticks, and a sleep may end one early."""


@dataclass(frozen=True)
class Asked:
    """A stream of the model ``stream``, and how it is to end."""

    protocol: str
    words: int
    leave_after: int = 0
    fail_after: int = -1
    pause_ms: int = PAUSE_MS
    cut: str = "as Triton sends it"

    @property
    def stream(self) -> Stream:
        return Stream(f"triton {self.protocol}", f"{self.words} words", "", ())

    @property
    def ending(self) -> str:
        if self.leave_after:
            return f"left after {self.leave_after}"
        return "whole" if self.fail_after < 0 else f"error after {self.fail_after}"

    @property
    def name(self) -> str:
        return re.sub(r"\W", "-", f"truth {self.protocol} {self.words} {self.pause_ms} {self.ending}")

    def by_grpc(self, server: TritonServer) -> list[tuple[float, str]]:
        """Ask over gRPC; return seconds since then beside each word."""
        numbers = (self.words, self.leave_after, self.pause_ms, self.fail_after)
        return [(at, word) for at, word in server.ask_by_grpc("timed", self.name, *numbers)]

    def by_http(self, server: TritonServer) -> list[tuple[float, str]]:
        """Ask by `generate_stream`; the same, the end last."""
        parameters = {"pause_ms": self.pause_ms, "fails_after": self.fail_after}
        body = {"id": self.name, "N": self.words, "parameters": parameters}
        seen = []
        began = time.monotonic()
        with server.client.stream("POST", "/v2/models/stream/generate_stream", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    seen.append((time.monotonic() - began, event.get("TOKEN") or f"error: {event['error']}"))
        return [*seen, (time.monotonic() - began, "")]


ASKED: Final = (
    Asked("grpc", 0),
    Asked("grpc", 1),
    Asked("grpc", 20),
    Asked("grpc", 20, pause_ms=0),
    Asked("grpc", 20, fail_after=0),
    Asked("grpc", 20, fail_after=7),
    Asked("grpc", 100, leave_after=1),
    Asked("grpc", 100, leave_after=9),
    Asked("http", 1),
    Asked("http", 20),
    Asked("http", 20, fail_after=7),
)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Serve all models; at its end all books must balance."""
    with serving(tmp_path_factory.mktemp("truth")) as server:
        yield server
        assert server.stops()
    assert_books_balance(server)


def compare(asked: Asked, seen: list[tuple[float, str]], record: dict[str, Any], comparison: Comparison) -> None:
    """Compare one record with what the client saw."""
    words = [(at, word) for at, word in seen if word.startswith("word")]
    assert [word for _, word in words] == [f"word{number}" for number in range(len(words))]
    if asked.leave_after:
        assert len(words) == asked.leave_after
        comparison.record(asked, {"outcome": "client_disconnect"}, record, ("outcome",))
        recorded = record["chunks"]
        comparison.holds(asked, "chunks", f"from {len(words)}", recorded, len(words) <= recorded < asked.words)
    else:
        failed = asked.fail_after >= 0
        true: dict[str, Any] = {"outcome": "error", "error.type": "UNAVAILABLE"} if failed else {"outcome": "ok"}
        true |= {"chunks": len(words)} if words else {}
        comparison.record(asked, true, record, ("outcome", "error.type", "chunks"))
        assert len(words) == (asked.fail_after if failed else asked.words)
        assert any(word.startswith("error: ") and "as asked" in word for _, word in seen) == failed
    pause_s = asked.pause_ms / 1e3
    least = pause_s * max(len(words) - 1, 0) - TOLERANCE_S
    duration_s = record["duration_s"]
    most = float("inf") if asked.leave_after else seen[-1][0]
    within = least <= duration_s <= most
    comparison.holds(asked, "duration_s", f"{least} to {most}", duration_s, within)
    name = "gen_ai.response.time_to_first_chunk"
    first = record.get(name)
    if words:
        comparison.holds(asked, name, f"up to {words[0][0]}", first, first is not None and 0 < first <= words[0][0])
    else:
        comparison.holds(asked, name, "absent", first, first is None)
    gaps_us = record.get("chunk_gaps_us", [])
    long_enough = all(gap >= (pause_s - TOLERANCE_S) * 1e6 for gap in gaps_us)
    count = max(record.get("chunks", 0) - 1, 0)
    comparison.holds(asked, "chunk_gaps_us", f"{count} of {pause_s} s", gaps_us, len(gaps_us) == count and long_enough)


def test_the_record_of_a_stream_is_what_its_client_read(triton: TritonServer, request: pytest.FixtureRequest) -> None:
    comparison = Comparison(request.node)
    for asked in ASKED:
        seen = asked.by_grpc(triton) if asked.protocol == "grpc" else asked.by_http(triton)
        compare(asked, seen, triton.record(asked.name, "stream"), comparison)
    comparison.conclude()
