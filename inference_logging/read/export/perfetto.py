"""A time line in Chrome's JSON trace format, which Perfetto's page and viztracer's `vizviewer` open.

A process is a process there, and its requests lie in as few lanes as hold them without overlap. Within a request lie
the engine's queue, prefill and decode, or waiting and streaming where no engine reports them; chunks and aborts are
instants.
The engine gives durations and no points in time, so its parts lie one behind the other from the arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

import orjson

from inference_logging.read.export.formats import Options
from inference_logging.read.export.requests import LeftOut, Request, number
from inference_logging.read.export.spool import Row

_ARGUMENTS: Final = (
    "request_id", "trace_id", "outcome", "error.type", "http.response.status_code", "gen_ai.request.model",
    "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens", "chunks",
    "gen_ai.response.time_to_first_chunk", "engine.preemptions", "tenant.id", "adjusted_count",
)  # fmt: skip
_ENGINE: Final = {"queue": "engine.queued_s", "prefill": "engine.prefill_s", "decode": "engine.decode_s"}


class Writer:
    """Writes the time line."""

    def __init__(self, _options: Options) -> None:
        """Need no options."""

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the request's events with times in microseconds after its arrival, and which process they are of."""
        record = request.record
        pod = record.get("k8s.pod.name") or record.get("host.name")
        process = [str(record.get("boot_id", "")), int(number(record, "pid") or 0), str(pod or "")]
        events = list(_events(request))
        return orjson.dumps({"process": process, "us": _microseconds(request.duration_s), "events": events})

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file: requests by arrival, each in a lane that is free."""
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        between = b"\n"
        for event in _placed(rows):
            file.write(between + orjson.dumps(event))
            between = b",\n"
        file.write(b"\n]}\n")


def _events(request: Request) -> Iterator[dict[str, Any]]:
    record, whole_us = request.record, _microseconds(request.duration_s)
    name = record.get("http.route") or record.get("url.path") or record.get("triton.model_name") or "request"
    arguments = {name: record[name] for name in _ARGUMENTS if name in record}
    yield {"ph": "X", "name": str(name), "cat": "request", "ts": 0, "dur": whole_us, "args": arguments}
    yield from _parts(request, whole_us)
    for at, sent_s in enumerate(request.chunks_s, 1):
        if (sent_us := _microseconds(sent_s)) <= whole_us:
            yield {"ph": "i", "s": "t", "name": "chunk", "cat": "chunk", "ts": sent_us, "args": {"chunk": at}}
    if (outcome := record.get("outcome")) != "ok":
        yield {"ph": "i", "s": "t", "name": str(outcome), "cat": "end", "ts": whole_us, "args": arguments}


def _parts(request: Request, whole_us: float) -> Iterator[dict[str, Any]]:
    lengths_s = {part: number(request.record, field) for part, field in _ENGINE.items()}
    if all(length is None for length in lengths_s.values()):
        first_s = number(request.record, "gen_ai.response.time_to_first_chunk")
        lengths_s = {} if first_s is None else {"waiting": first_s, "streaming": request.duration_s - first_s}
    begin_us = 0.0
    for part, length_s in lengths_s.items():
        end_us = min(whole_us, begin_us + _microseconds(length_s or 0))
        if end_us > begin_us:
            yield {"ph": "X", "name": part, "cat": "part", "ts": begin_us, "dur": end_us - begin_us}
        begin_us = end_us


def _placed(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Give each request's events their time, process and lane; a process and a lane are named when they begin."""
    lanes: dict[str, _Lanes] = {}
    for row in rows:
        request, begin_us = orjson.loads(row.content), row.since_first_nano / 1000
        boot_id, pid, pod = request["process"]
        if boot_id not in lanes:
            lanes[boot_id] = _Lanes(len(lanes) + 1)
            yield lanes[boot_id].named("process_name", 0, f"{pod} pid {pid} ({boot_id})".strip())
        process = lanes[boot_id]
        lane, is_new = process.take(begin_us, begin_us + request["us"])
        if is_new:
            yield process.named("thread_name", lane, f"requests {lane}")
        for event in request["events"]:
            yield {**event, "ts": round(begin_us + event["ts"], 3), "pid": process.number, "tid": lane}


class _Lanes:
    """The lanes of one process, each with the time at which it is free again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._count = 0
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []

    def take(self, begin_us: float, end_us: float) -> tuple[int, bool]:
        """Return the first lane that is free at ``begin_us``, and whether it is a new one."""
        while self._busy and self._busy[0][0] <= begin_us:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        is_new = not self._free
        if is_new:
            self._count += 1
        lane = self._count if is_new else heapq.heappop(self._free)
        heapq.heappush(self._busy, (end_us, lane))
        return lane, is_new

    def named(self, kind: str, lane: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": self.number, "tid": lane, "args": {"name": name}}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
