"""The turns without a server: applications are awaited with hand-made scopes, in processes on one core.

A process is a round of `inference-logging bench --against`, whose files are both empty: the arms are the application by
itself, and three times with the middleware in its default configuration. Two of these are compared: the control.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from inference_logging.prove.bench import configurations
from inference_logging.prove.bench import configurations_round as turns
from inference_logging.prove.bench.configurations_round import (
    CHUNKS,
    CONTROL,
    GET,
    KINDS,
    LOGGED,
    NONE,
    OLD,
    POST,
    STREAM,
)
from inference_logging.read.stats.interval import Interval, of_groups
from inference_logging.record.asgi.lifespan import ASGIApp
from inference_logging.record.config import FileConfig
from loadtests.turns.bench_turns_rows import doubt, verdict

MOST_US: Final = 2.0
MOST_CHUNK_US: Final = 0.12


def fastapi() -> FastAPI:
    """Return a FastAPI application that answers as the bare one does."""
    app = FastAPI()

    @app.get(GET.path)
    async def models() -> Response:
        return Response(b'{"object":"list","data":[]}', media_type="application/json")

    @app.post(STREAM.path)
    async def complete(request: Request) -> Response:
        if not (await request.body()).endswith(b"true}"):
            return Response(turns.ANSWER, media_type="application/json")

        async def chunks() -> Any:
            for _ in range(CHUNKS):
                yield turns.CHUNK

        return StreamingResponse(chunks(), media_type="text/event-stream")

    return app


APPS: Final[dict[str, Callable[[], ASGIApp]]] = {"bare ASGI": lambda: turns.application, "FastAPI": fastapi}

Rows = list[dict[str, Any]]
"""As ``--json`` writes them."""


def inside(seconds: float, processes: int) -> Rows:
    """Measure a bare ASGI application and FastAPI, within ``seconds`` for each kind of request of each."""
    return [row for name in APPS for row in rows_of(f"in process, {name}", _measured(name, 2 * seconds, processes))]


def _measured(name: str, seconds: float, processes: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        empty = Path(directory) / "empty.yaml"
        empty.write_text("version: 1\n", encoding="utf-8")
        parameters, _ = configurations.replacements(FileConfig(config_file=empty))
        arms = dict.fromkeys(LOGGED, empty), dict.fromkeys(LOGGED, parameters)
        module = "loadtests.turns.bench_turns_inside", name
        return [configurations.measure(*arms, seconds / processes, number, *module) for number in range(processes)]


Series = list[list[float]]
"""A figure batch by batch, of each process."""


def rows_of(name: str, processes: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Iterate over what the rounds of some processes give for a request, a stream, and one of its chunks."""
    added: dict[str, Series] = {}
    reasons = []
    for kind in KINDS:
        batches = [one["kinds"][kind.name]["batches"] for one in processes]
        added[kind.name] = [[batch[OLD]["cpu_us"] - batch[NONE]["cpu_us"] for batch in one] for one in batches]
        if kind == POST:
            continue
        unlogged = fmean(batch[NONE]["cpu_us"] for one in batches for batch in one)
        control = _ratio(batches, OLD, CONTROL)
        most = MOST_US + (CHUNKS * MOST_CHUNK_US if kind == STREAM else 0.0)
        reasons.append(doubt(control, most / (unlogged + most)))
        yield {
            **row(name + (f", stream of {CHUNKS}" if kind == STREAM else ""), added[kind.name], most, reasons[-1]),
            "unlogged_to_logged": _ratio(batches, NONE, OLD).as_json(),
            "control": control.as_json(),
            "unlogged_us": unlogged,
            "listener_us_per_record": fmean(batch[OLD]["listener_us"] for one in batches for batch in one),
            "batches": sum(map(len, batches)),
        }
    pairs = zip(added[STREAM.name], added[POST.name], strict=True)  # both have a body to be read
    chunk = [[(a - b) / CHUNKS for a, b in zip(*one, strict=False)] for one in pairs]
    yield row(f"{name}, one chunk", chunk, MOST_CHUNK_US, reasons[0] or reasons[-1])


def row(name: str, added: Series, most_us: float, reason: str | None) -> dict[str, Any]:
    """Return what the middleware adds, the goal and what became of it; ``reason``: why that cannot be said."""
    found = of_groups(added)
    close = ", but within noise of the goal" if not reason and found.holds(most_us) else ""
    judged = f"goal ≤ {most_us:g} µs: {verdict(found.value <= most_us, reason)}{close}"
    return {"name": name, "added_us": found.as_json(), "verdict": judged}


def _ratio(batches: Sequence[Sequence[Any]], over: str, under: str) -> Interval:
    logs = of_groups([[math.log(one[over]["cpu_us"] / one[under]["cpu_us"]) for one in found] for found in batches])
    return Interval(*map(math.exp, (logs.value, logs.low, logs.high)))


if __name__ == "__main__":
    turns.main(APPS[sys.argv[1]]())
