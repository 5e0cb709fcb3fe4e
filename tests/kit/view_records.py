"""A folder of segments as two pods of a busy inference service leave it: made, not measured, and the same every time.

A small model of an engine (a queue, slots, speed that falls with the batch) gives the times, so that what a page draws
of them has the shape of real traffic: a burst, a queue that grows, stalls, clients that give up, an error that repeats.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

SLOTS: Final = 12
"""Requests that one engine works on at a time."""
TENANTS: Final = ("acme", "globex", "initech", "umbrella", "hooli")
MODELS: Final = ("llama-3.1-8b", "qwen2.5-7b")
MESSAGES: Final = (
    ("Summarise the incident of last night in three sentences.", "At 02:14 the queue of pod chat-1 filled up. "),
    ("Write a haiku about shared memory.", "Two pens, one page, bright; each line is kept where it falls. "),
    ("How do prefill and decode differ?", "Prefill reads the prompt at once; decode makes one token after another. "),
)  # fmt: skip
STACK: Final = (
    "Traceback (most recent call last):\n"
    '  File "/srv/app/generate.py", line 88, in generate\n    async for part in engine.stream(prompt):\n'
    '  File "/srv/app/engine.py", line 41, in stream\n    raise EngineOverloaded(f"{waiting} requests wait")\n'
    "engine.EngineOverloaded: 41 requests wait\n"
)


@dataclass
class Pod:
    """One server with its engine: what runs, what waits, and the number of its last record."""

    name: str
    boot_id: str
    pid: int
    version: str
    free: list[float] = field(default_factory=lambda: [0.0] * SLOTS)
    lines: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    spans: list[tuple[float, float, float]] = field(default_factory=list)


def make(folder: Path, requests: int, seconds: float, end: datetime, seed: int = 7) -> None:
    """Write the segments of two pods whose records end at ``end``, with ``requests`` over ``seconds``."""
    chance = random.Random(seed)
    pods = [Pod("chat-0", "00000000c0ffee00", 41, "1.4.0"), Pod("chat-1", "00000000c0ffee01", 44, "1.5.0")]
    begin = end - timedelta(seconds=seconds)
    for number, arrival in enumerate(_arrivals(chance, requests, seconds)):
        _serve(chance, pods[chance.random() < 0.55], number, arrival)
    folder.mkdir(parents=True, exist_ok=True)
    for pod in pods:
        _add_statistics(pod, seconds)
        _write(folder, pod, begin)


def _arrivals(chance: random.Random, requests: int, seconds: float) -> list[float]:
    """Return sorted times of arrival: even, with one burst of a fifth of them in a twelfth of the time."""
    even = [chance.uniform(0, seconds) for _ in range(requests * 4 // 5)]
    burst = [seconds * 0.55 + abs(chance.gauss(0, seconds / 24)) for _ in range(requests - len(even))]
    return sorted(min(arrival, seconds * 0.999) for arrival in even + burst)


def _serve(chance: random.Random, pod: Pod, number: int, arrival: float) -> None:
    tenant = chance.choices(TENANTS, (40, 25, 18, 12, 5))[0]
    model = chance.choices(MODELS, (70, 30))[0]
    prompt = max(8, int(chance.lognormvariate(5.6, 1.0)))
    output = max(2, min(900, int(chance.lognormvariate(4.0 if tenant != "hooli" else 5.4, 0.8))))
    begun = max(arrival + 0.0004, heapq.heappop(pod.free))
    busy = sum(1 for free in pod.free if free > arrival) + 1
    queued, prefill = begun - arrival, prompt * 0.00012 * (1 + busy / SLOTS)
    pace = chance.uniform(0.9, 1.15) * (0.008 if model == MODELS[1] else 0.012) * (1 + busy / SLOTS)
    gaps = [max(0.001, chance.gauss(pace, pace / 6)) for _ in range(output - 1)]
    if gaps and chance.random() < 0.02:
        gaps[chance.randrange(len(gaps))] += chance.uniform(0.4, 2.5)
    heapq.heappush(pod.free, begun + prefill + sum(gaps))
    _record(chance, pod, number, _Made(arrival, tenant, model, prompt, queued, prefill, gaps))


@dataclass(frozen=True)
class _Made:
    arrival: float
    tenant: str
    model: str
    prompt: int
    queued: float
    prefill: float
    gaps: list[float]


def _record(chance: random.Random, pod: Pod, number: int, made: _Made) -> None:
    request_id = f"{chance.getrandbits(64):016x}"
    ids = {"trace_id": f"{chance.getrandbits(128):032x}", "span_id": request_id, "request_id": request_id}
    outcome, gaps = _outcome(chance, made)
    first = made.queued + made.prefill + 0.002
    duration = 0.004 + made.queued if outcome == "error" else first + sum(gaps)
    after = chance.uniform(0.0001, 0.0009) if chance.random() > 0.03 else chance.uniform(0.05, 0.4)
    ended = made.arrival + duration + after
    pod.spans.append((made.arrival, made.arrival + made.queued, ended))
    started = {"prompt_tokens": made.prompt, "stream": True}
    pod.lines.append((made.arrival + 0.001, _log(ids, "INFO", "generation started", started)))
    if outcome == "error":
        pod.lines.append((made.arrival + duration, _log(ids, "ERROR", "engine refused the request", {"waiting": 41})))
    elif made.queued > 1:
        waited = {"waited_s": round(made.queued, 3)}
        pod.lines.append((made.arrival + made.queued, _log(ids, "WARN", "request waited for a slot", waited)))
    pod.lines.append((ended, _request(number, ids, made, outcome, gaps, duration, after)))


def _outcome(chance: random.Random, made: _Made) -> tuple[str, list[float]]:
    dice = chance.random()
    if made.queued > 4 and dice < 0.3:
        return "error", []
    if dice < 0.006:
        return "error", []
    if dice < 0.03 or (made.queued > 3 and dice < 0.5):
        return "client_disconnect", made.gaps[: len(made.gaps) // 3]
    return ("timeout", made.gaps) if sum(made.gaps) > 22 else ("ok", made.gaps)


def _log(ids: dict[str, str], severity: str, message: str, attributes: dict[str, Any]) -> dict[str, Any]:
    trace = {name: ids[name] for name in ("trace_id", "span_id")}
    head = {"severity_text": severity, "event_name": "log", **trace, "logger": "app.generate", "message": message}
    return {**head, "request_id": ids["request_id"], "attributes": attributes}


def _request(
    number: int, ids: dict[str, str], made: _Made, outcome: str, gaps: list[float], duration: float, after: float
) -> dict[str, Any]:
    failed, aborted = outcome == "error", outcome == "client_disconnect"
    route = "/v1/completions" if number % 6 == 0 else "/v1/chat/completions"
    record: dict[str, Any] = {
        "severity_text": "ERROR" if failed else "INFO", "event_name": "request", **ids, "trace_flags": "03",
        "outcome": outcome, **({"error.type": "EngineOverloaded"} if failed else {}), "http.request.method": "POST",
        "url.path": route, "http.route": route, "network.protocol.version": "1.1",
        "client.address": f"10.1.{len(made.tenant)}.{number % 200}",
        "http.response.status_code": 503 if failed else 200, "http.request.body.size": 180 + made.prompt * 5,
        "duration_s": round(duration, 6), "after_response_s": round(after, 6),
        "gen_ai.operation.name": "chat" if "chat" in route else "text_completion", "tenant.id": made.tenant,
        "gen_ai.request.model": made.model, "gen_ai.request.stream": True,
    }  # fmt: skip
    if failed:
        message = {"exception.type": "engine.EngineOverloaded", "exception.message": "41 requests wait"}
        record |= message | {"exception.stacktrace": STACK}
    else:
        record |= _answer(number, made, gaps, duration) | _engine(made, gaps, aborted)
    return record | {"sampled_by": "error" if failed else "abort" if aborted else "head", "adjusted_count": 1.0}


def _answer(number: int, made: _Made, gaps: list[float], duration: float) -> dict[str, Any]:
    asked, answered = MESSAGES[number % len(MESSAGES)]
    micros = [round(gap * 1e6) for gap in gaps]
    tokens = len(gaps) + 1
    gap_facts = {
        "chunk_gap_min_us": min(micros), "chunk_gap_mean_us": sum(micros) // len(micros),
        "chunk_gap_max_us": max(micros), "chunk_gaps_us": micros[:256],
        **({"chunk_gaps_truncated": len(micros) - 256} if len(micros) > 256 else {}),
    } if micros else {}  # fmt: skip
    text = {
        "gen_ai.input.messages": [
            {"role": "system", "parts": [{"type": "text", "content": "You are brief."}]},
            {"role": "user", "parts": [{"type": "text", "content": asked}]},
        ],
        "gen_ai.output.messages": [
            {"role": "assistant", "parts": [{"type": "text", "content": answered * max(1, tokens // 12)}],
             "finish_reason": "stop"},
        ],
    } if number % 3 else {}  # fmt: skip
    return {
        "http.response.body.size": 300 + tokens * 210, "chunks": tokens,
        "gen_ai.response.time_to_first_chunk": round(made.queued + made.prefill + 0.002, 6), **gap_facts,
        "gen_ai.response.model": made.model, "gen_ai.response.finish_reasons": ["stop"], **text,
        "gen_ai.usage.input_tokens": made.prompt, "gen_ai.usage.output_tokens": tokens,
        "gen_ai.usage.cache_read.input_tokens": made.prompt // 3 // 16 * 16, "usage_source": "engine",
        "gen_ai.response.time_per_output_token": round(sum(gaps) / max(1, len(gaps)), 6),
        "gen_ai.response.output_tokens_per_second": round(tokens / max(duration, 0.001), 3),
    }  # fmt: skip


def _engine(made: _Made, gaps: list[float], aborted: bool) -> dict[str, Any]:
    times = {"engine.queued_s": made.queued, "engine.prefill_s": made.prefill, "engine.decode_s": sum(gaps)}
    rounded = {name: round(value, 6) for name, value in times.items()}
    return {**rounded, "engine.requests": 1, "engine.finish_reasons": ["abort" if aborted else "stop"]}


def _add_statistics(pod: Pod, seconds: float) -> None:
    """Add the engine's state every five seconds, and one loss under the burst."""
    for at in range(5, int(seconds), 5):
        waiting = sum(1 for arrival, begun, _ in pod.spans if arrival <= at < begun)
        running = sum(1 for _, begun, ended in pod.spans if begun <= at < ended)
        state = {
            "engine.index": 0, "engine.interval_s": 5.0, "engine.running": running, "engine.waiting": waiting,
            "engine.kv_cache_usage": round(min(0.98, running / SLOTS * 0.8 + waiting * 0.004), 4),
            "engine.generation_tokens_per_s": round(running * 61.0, 1), "engine.preemptions": int(waiting > 20),
        }  # fmt: skip
        pod.lines.append((at, {"severity_text": "INFO", "event_name": "engine.stats", **state}))
    if pod.name == "chat-1":
        lost = {"dropped": 18, "reasons": {"queue_full": {"INFO": 18}}, "lost": []}
        pod.lines.append((seconds * 0.61, {"severity_text": "ERROR", "event_name": "log.dropped", **lost}))


def _write(folder: Path, pod: Pod, begin: datetime) -> None:
    """Write the pod's lines as sealed segments, with the header and the footer that the listener writes."""
    pod.lines.sort(key=lambda line: line[0])
    sequence = [0]
    per_segment = max(1, -(-len(pod.lines) // 3))
    accepted = sum(line["event_name"] not in ("log.dropped", "process.ended") for _, line in pod.lines)
    refused = {"queue_full": {"INFO": 18}} if any("dropped" in line for _, line in pod.lines) else {}
    ended = {"how": "closed", "accepted": accepted, "written": accepted, "reasons": refused, "sampled_out": {}}
    pod.lines.append((pod.lines[-1][0], {"severity_text": "INFO", "event_name": "process.ended", **ended}))
    for number, at in enumerate(range(0, len(pod.lines), per_segment), 1):
        lines = list(_stamped(pod, begin, pod.lines[at : at + per_segment], sequence))
        _write_segment(folder, pod, number, lines, sequence[0])


def _stamped(
    pod: Pod, begin: datetime, lines: list[tuple[float, dict[str, Any]]], sequence: list[int]
) -> Iterator[tuple[datetime, dict[str, Any]]]:
    for second, line in lines:
        at = begin + timedelta(seconds=second)
        head = {
            "timestamp": stamp(at),
            "severity_text": line.pop("severity_text"),
            "event_name": line.pop("event_name"),
        }
        if head["event_name"] in ("log.dropped", "process.ended"):  # the listener's own: they have no number
            yield at, {**head, "boot_id": pod.boot_id, "pid": pod.pid, **line}
        else:
            yield at, {**head, "boot_id": pod.boot_id, "pid": pod.pid, "seq": sequence[0], **line}
            sequence[0] += 1


def stamp(at: datetime) -> str:
    """Return a time as a line has it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def _write_segment(
    folder: Path, pod: Pod, number: int, lines: list[tuple[datetime, dict[str, Any]]], accepted: int
) -> None:
    begun = lines[0][0]
    resource = {
        "service.name": "chat",
        "service.version": pod.version,
        "k8s.pod.name": pod.name,
        "k8s.namespace.name": "prod",
    }
    header = {
        "timestamp": stamp(begun), "event_name": "segment.header", "schema_version": 1, "boot_id": pod.boot_id,
        "segment": number, "resource": resource,
    }  # fmt: skip
    numbers = [line["seq"] for _, line in lines if "seq" in line]
    dropped = {"queue_full": {"INFO": 18}} if any(line["event_name"] == "log.dropped" for _, line in lines) else {}
    process = {"boot_id": pod.boot_id, "pid": pod.pid}
    content = b"".join(orjson.dumps(line) + b"\n" for line in (line for _, line in lines))
    footer = {
        "timestamp": stamp(lines[-1][0]), "event_name": "segment.footer", "segment": number, "records": len(lines),
        "bytes": len(content), "crc32": f"{zlib.crc32(content):08x}",
        "spans": [{**process, "first": numbers[0], "last": numbers[-1], "records": len(numbers)}] if numbers else [],
        "processes": [{**process, "accepted": accepted, "written": accepted, "in_queue": 0, "dropped": dropped}],
    }  # fmt: skip
    content = orjson.dumps(header) + b"\n" + content + orjson.dumps(footer) + b"\n"
    time = begun.strftime("%Y%m%dT%H%M%S.%f")[:-3]
    (folder / f"chat-{time}Z-{pod.boot_id}-{number:06}.jsonl").write_bytes(content)
