"""Segments as several services leave them in a day, made by a script: requests, application records, statistics.

The lines have the fields, the order and the forms of the listener's; their numbers come from one seed for each pod. The
first segment of a pod is made line by line. The later ones have the same lines at later hours: making each anew would
take longer than all that is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import orjson

SEGMENT_BYTES: Final = 64 << 20
_BEGUN: Final = datetime(2026, 11, 20, tzinfo=timezone.utc)
_MEAN_GAP_S: Final = 0.01
_ERRORS: Final = ("RuntimeError", "TimeoutError", "ValueError", "EngineDeadError")
_ROUTES: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/healthz/{probe}")
_OPERATIONS: Final = ("chat", "text_completion", "embeddings", None)


_PODS: Final = (
    *(("chat", ("llama-3.1-70b", "llama-3.1-8b")),) * 4,
    *(("code", ("qwen2.5-coder-32b",)),) * 3,
    *(("search", ("bge-m3", "llama-3.1-8b")),) * 2,
)
"""The service of each pod, and its models."""


def make(directory: Path, size_bytes: int, processes: int = 2) -> int:
    """Write segments of ``size_bytes`` in all into ``directory``; return how many they are."""
    directory.mkdir(parents=True, exist_ok=True)
    segment_bytes = min(SEGMENT_BYTES, size_bytes)
    count = max(1, size_bytes // segment_bytes)
    with get_context("spawn").Pool(processes) as pool:
        pool.map(partial(_write_pod, directory, segment_bytes, count), range(len(_PODS)), chunksize=1)
    return count


def _write_pod(directory: Path, size_bytes: int, count: int, place: int) -> None:
    """Write the segments of a pod, of which all pods together have ``count``."""
    service, models = _PODS[place]
    boot_id, body = f"{0xB007000 + place:016x}", b""
    lines: list[bytes] = []
    for number, _ in enumerate(range(place, count, len(_PODS)), 1):
        begun = _BEGUN + timedelta(hours=number - 1)
        if not lines:
            made, written = _lines(random.Random(place), models, place, boot_id, begun), 0
            while written < size_bytes:
                lines.append(next(made))
                written += len(lines[-1])
            body = b"".join(lines)
        name = f"{service}-{begun:%Y%m%dT%H%M%S.000Z}-{boot_id}-{number:06}.jsonl"
        hour = f'{{"timestamp":"{begun:%Y-%m-%dT%H}'.encode()
        header = {
            "timestamp": _stamp(begun), "event_name": "segment.header", "schema_version": 1, "boot_id": boot_id,
            "segment": number,
            "resource": {
                "service.name": service, "host.name": f"node-{place}", "k8s.namespace.name": "inference",
                "k8s.pod.name": f"{service}-{place}", "k8s.node.name": f"node-{place}",
            },
        }  # fmt: skip
        footer = {"timestamp": _stamp(begun), "event_name": "segment.footer", "segment": number}
        with (directory / name).open("wb") as file:
            file.write(orjson.dumps(header) + b"\n")
            file.write(body.replace(f'{{"timestamp":"{_BEGUN:%Y-%m-%dT%H}'.encode(), hour))
            file.write(orjson.dumps({**footer, "records": len(lines), "bytes": len(body)}) + b"\n")


def _stamp(at: datetime, nanos: int = 0) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}{nanos:03}Z"


def _lines(source: random.Random, models: Sequence[str], pod: int, boot_id: str, begun: datetime) -> Iterator[bytes]:
    at, seq = begun, source.randrange(1 << 20)
    while True:
        at += timedelta(seconds=source.expovariate(1 / _MEAN_GAP_S))
        seq += 1
        head = f'{{"timestamp":"{_stamp(at, source.randrange(1000))}","severity_text":'
        ids = f'"boot_id":"{boot_id}","pid":{200 + pod},"seq":{seq}'
        kind = source.random()
        if kind < 0.03:
            yield _log(source, head, ids)
        elif kind < 0.033:
            yield _statistics(source, head, ids)
        else:
            yield _request(source, models, head, ids)


def _log(source: random.Random, head: str, ids: str) -> bytes:
    tokens = source.randrange(4000)
    return (
        f'{head}"INFO","event_name":"log",{ids},"trace_id":"{source.getrandbits(128):032x}","span_id":'
        f'"{source.getrandbits(64):016x}","trace_flags":"01","request_id":"{source.getrandbits(64):016x}","logger":'
        f'"app.generate","message":"retrieved {tokens} tokens from \\"cache\\" shard {tokens % 7}","attributes":'
        f'{{"n":{tokens},"shard":"s{tokens % 7}"}}}}\n'
    ).encode()


def _statistics(source: random.Random, head: str, ids: str) -> bytes:
    return (
        f'{head}"INFO","event_name":"engine.stats",{ids},"engine.running":{source.randrange(64)},"engine.waiting":'
        f'{source.randrange(20)},"engine.kv_cache_usage":{source.random():.6f},"engine.prefix_cache_hits":'
        f"{source.randrange(10000)}}}\n"
    ).encode()


def _request(source: random.Random, models: Sequence[str], head: str, ids: str) -> bytes:
    route = source.choices(range(4), (70, 15, 12, 3))[0]
    chance = source.random()
    outcome = "ok" if chance > 0.02 else "error" if chance > 0.01 else "client_disconnect"
    duration = round(min(source.lognormvariate(0.4, 1.0), 600.0), 6)
    first, chunks = round(duration * source.uniform(0.05, 0.3), 6), source.randrange(1, 600)
    inputs, outputs = source.randrange(20, 6000), max(1, int(duration * source.uniform(20, 60)))
    queued = round(first * source.uniform(0.1, 0.6), 6)
    tenant = min(int(source.paretovariate(1.1)), 300)
    model = models[source.randrange(len(models))]
    path = _ROUTES[route] if route < 3 else f"/healthz/{source.randrange(50)}"
    status = {"ok": 200, "error": 500, "client_disconnect": 200}[outcome]
    error = f',"error.type":"{_ERRORS[source.randrange(4)]}"' if outcome == "error" else ""
    operation = f',"gen_ai.operation.name":"{_OPERATIONS[route]}"' if route < 3 else ""
    return (
        f'{head}"{"INFO" if outcome == "ok" else "ERROR"}","event_name":"request",{ids},"trace_id":'
        f'"{source.getrandbits(128):032x}","span_id":"{source.getrandbits(64):016x}","trace_flags":"01","request_id":'
        f'"{source.getrandbits(64):016x}","client_request_id":"{source.getrandbits(128):032x}","outcome":"{outcome}"'
        f'{error},"http.request.method":"POST","url.path":"{path}","http.route":"{_ROUTES[route]}",'
        f'"network.protocol.version":"1.1","client.address":"10.0.{tenant % 8}.{source.randrange(250)}",'
        f'"http.response.status_code":{status},"http.request.body.size":{inputs * 4},"http.response.body.size":'
        f'{outputs * 180},"duration_s":{duration!r},"chunks":{chunks},"gen_ai.response.time_to_first_chunk":{first!r},'
        f'"chunk_gap_min_us":{source.randrange(8000)},"chunk_gap_mean_us":{int(duration / chunks * 1e6)},'
        f'"chunk_gap_max_us":{source.randrange(8000, 90000)}{operation},"gen_ai.request.model":"{model}",'
        f'"gen_ai.request.stream":true,"gen_ai.request.max_tokens":1024,"gen_ai.request.temperature":0.7,'
        f'"gen_ai.response.id":"chatcmpl-{source.getrandbits(96):024x}","gen_ai.response.model":"{model}",'
        f'"gen_ai.response.finish_reasons":["stop"],"gen_ai.usage.input_tokens":{inputs},"gen_ai.usage.output_tokens":'
        f'{outputs},"gen_ai.usage.cache_read.input_tokens":{inputs // 3},"tenant.id":"tenant-{tenant}","enduser.id":'
        f'"user-{tenant * 37 % 5000}","sampled_by":"head","adjusted_count":1.0,"usage_source":"response",'
        f'"engine.queued_s":{queued!r},"engine.prefill_s":{round(first - queued, 6)!r},"engine.decode_s":'
        f'{round(duration - first, 6)!r},"engine.finish_reasons":["stop"]}}\n'
    ).encode()
