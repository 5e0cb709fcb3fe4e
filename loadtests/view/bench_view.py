"""How quickly the table of segments is made, and answers what `view` and `query` ask: over 2 GB, in new processes.

`--bytes 10e9` is the size that the bounds are promised for; without the table `query` then reads for several minutes. A
step that takes longer than `--limit` seconds is ended, and its line says so.

Each question is asked by a process of its own, which opens the table as it lies on disk: the time is that of its calls,
without the interpreter's start. Files stand in the page cache as far as they fit. Parquet files are read into buffers
and never mapped, so that the resident memory has no part of them; what is mapped is the program itself.

The segments are those of several services in a day: their lines have the fields, the order and the forms of the
listener's, and numbers from one seed for each pod. The first segment of a pod is made line by line. The later ones have
the same lines at later hours: making each anew would take longer than all that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.prove.bench.machine import memory_bytes
from inference_logging.read.table.table import Table
from loadtests import harness

FIRST_ROWS_S: Final = 1.0
"""Without a table, too."""
MOST_MB: Final = 300
_SQL: Final = 'SELECT "http.route", outcome, count(*), sum(duration_s) FROM requests GROUP BY ALL ORDER BY ALL'


DEFAULT_BYTES: Final = 2e9
DEFAULT_LIMIT_S: Final = 300.0
SEGMENT_BYTES: Final = 64 << 20
_BEGUN: Final = datetime(2026, 11, 20, tzinfo=timezone.utc)
_MEAN_GAP_S: Final = 0.01
_ERRORS: Final = ("RuntimeError", "TimeoutError", "ValueError", "EngineDeadError")
_ROUTES: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/healthz/{probe}")
_OPERATIONS: Final = ("chat", "text_completion", "embeddings")


_PODS: Final = (
    *(("chat", ("llama-3.1-70b", "llama-3.1-8b")),) * 4,
    *(("code", ("qwen2.5-coder-32b",)),) * 3,
    *(("search", ("bge-m3", "llama-3.1-8b")),) * 2,
)
"""The service of each pod, and its models."""


class Question(NamedTuple):
    """What is asked, and the bound of its time in seconds where there is one."""

    method: str
    query: dict[str, Any]
    bound_s: float | None = None


QUESTIONS: Final = {
    "first rows": Question("rows", {"limit": 100}, FIRST_ROWS_S),
    "filter: two conditions": Question("rows", {"where": ["outcome=error", "duration_s>30"], "limit": 100}, 2.0),
    "filter: three conditions, few rows": Question(
        "rows",
        {"where": ["http.route~chat", "tenant.id=tenant-7", "gen_ai.usage.input_tokens>5990"], "limit": 1000},
        2.0,
    ),
    "slowest requests": Question("rows", {"order": "-duration_s", "limit": 100}, 2.0),
    "a trace": Question("rows", {"trace": "abcdef"}, 2.0),
    "aggregate of a filter, heat map": Question(
        "aggregate", {"where": ["outcome!=ok"], "heatmap": "duration_s", "fields": ["duration_s"]}, 2.0
    ),
    "aggregate of all": Question("aggregate", {"events": ["request"], "fields": ["duration_s"]}),
    "aggregate of all, by tenant": Question("aggregate", {"group_by": "tenant.id", "fields": ["duration_s"]}),
    "values of a field": Question("values", {"field": "http.route"}),
    "text in lines, for 2 s": Question("rows", {"text": "nowhere in them", "budget_s": 2.0}),
}


def main() -> int:
    """Measure, print, and return 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, default=DEFAULT_BYTES, help="of segments; default: %(default).0f")
    parser.add_argument(
        "--limit", type=float, default=DEFAULT_LIMIT_S, help="seconds of one step, at most; default: %(default).0f"
    )
    parser.add_argument("--directory", type=Path, help="keep the segments here, and use those that are there")
    parser.add_argument("--ask", nargs=3, metavar=("SEGMENTS", "CACHE", "QUESTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask is not None:
        return _ask(Path(options.ask[0]), Path(options.ask[1]), options.ask[2])
    with TemporaryDirectory(prefix="bench-view-") as scratch:
        segments = options.directory or Path(scratch) / "segments"
        if not any(segments.glob("*.jsonl")):
            make(segments, int(options.bytes))
        return _measure(segments, Path(scratch) / "cache", options.limit)


def _measure(segments: Path, cache: Path, limit_s: float) -> int:
    size = sum(path.stat().st_size for path in segments.glob("*.jsonl"))
    print(f"{size / 1e9:.2f} GB of plain segments, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
    without = _in_process(segments, cache, "", limit_s)
    print(f"{'first rows without a table, newest segment first':<52}{_seconds(without, limit_s)} s")
    shutil.rmtree(cache, ignore_errors=True)
    begun, cpu = time.perf_counter(), _children_cpu_s()
    if _run(limit_s, "index", str(segments), "--cache-directory", str(cache)) is None:
        print(f"{'making the table':<52}{_seconds(None, limit_s)} s\nthe rest needs the whole table")
        return 1
    took, cpu = time.perf_counter() - begun, _children_cpu_s() - cpu
    table_bytes = sum(path.stat().st_size for path in cache.rglob("*.parquet"))
    print(f"{'making the table':<52}{took:8.3f} s  {size / took / 1e6:.0f} MB/s; {size / cpu / 1e6:.0f} MB per CPU s")
    print(f"{'its size':<52}{table_bytes / 1e6:8.1f} MB  {table_bytes / size:.1%} of the segments\n")
    print(
        f"{'in a new process':<52}{'seconds':>8}  {'bound':>5}  {'CPU s':>7}  {'MB resident at most':>19}  {'files':>5}"
    )
    is_met = without is not None and without["seconds"] <= FIRST_ROWS_S
    for name, question in QUESTIONS.items():
        is_met &= _print_question(segments, cache, name, question, limit_s)
    print("files: the program's own that are mapped, of the memory; no Parquet file is\n")
    _print_query(segments, cache, limit_s)
    print("every bound is met" if is_met else "a bound is exceeded")
    return 0 if is_met else 1


def _print_question(segments: Path, cache: Path, name: str, question: Question, limit_s: float) -> bool:
    """Ask a question, print what it took, and return whether that is within its bounds."""
    found = _in_process(segments, cache, name, limit_s)
    bound = "" if question.bound_s is None else f"{question.bound_s:.0f}"
    costs = "" if found is None else f"{found['cpu_s']:7.3f}  {found['peak_mb']:19.1f}  {found['files_mb']:5.1f}"
    print(f"{name:<52}{_seconds(found, limit_s)}  {bound:>5}  {costs}")
    if found is None:
        return question.bound_s is None
    return found["peak_mb"] <= MOST_MB and (question.bound_s is None or found["seconds"] <= question.bound_s)


def _seconds(found: dict[str, float] | None, limit_s: float) -> str:
    """Return the time of a step; None: it was ended at its limit."""
    return f">{limit_s:7.0f}" if found is None else f"{found['seconds']:8.3f}"


def _print_query(segments: Path, cache: Path, limit_s: float) -> None:
    """Compare `query` with the table and without it."""
    os.environ["XDG_CACHE_HOME"] = str(cache.parent)
    (cache.parent / "inference-logging").symlink_to(cache)
    seconds = {}
    for name, more in (("with the table", ()), ("without it", ("--no-index",))):
        begun, cpu = time.perf_counter(), _children_cpu_s()
        answer = _run(limit_s, "query", _SQL, str(segments), "--format", "csv", *more)
        if answer is None:
            print(f"{'query, ' + name:<52}{_seconds(None, limit_s)} s")
            return
        seconds[name] = time.perf_counter() - begun
        cpu = _children_cpu_s() - cpu
        print(f"{'query, ' + name:<52}{seconds[name]:8.3f} s  {cpu:.1f} CPU s, {len(answer.splitlines()) - 1} rows")
    print(f"{'ratio':<52}{seconds['without it'] / seconds['with the table']:8.1f}\n")


def _run(limit_s: float, *arguments: str) -> str | None:
    """Run one of our commands, and return what it prints; None if it was ended at its limit."""
    return _output([sys.executable, "-m", "inference_logging.cli.main", *arguments], limit_s)


def _in_process(segments: Path, cache: Path, name: str, limit_s: float) -> dict[str, float] | None:
    command = [sys.executable, "-m", "loadtests.view.bench_view"]
    answer = _output([*command, "--ask", str(segments), str(cache), name], limit_s)
    found: dict[str, float] | None = None if answer is None else json.loads(answer)
    return found


def _output(command: list[str], limit_s: float) -> str | None:
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit_s).stdout
    except subprocess.TimeoutExpired:
        return None


def _ask(segments: Path, cache: Path, name: str) -> int:
    """Ask one question in this process, and print its costs; without a name, for the first rows of a new table."""
    work = partial(_answer, segments, cache, QUESTIONS[name]) if name else partial(_first_rows, segments, cache)
    seconds = harness.seconds(work)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    costs = {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": memory_bytes("VmHWM") / 1e6,
        "files_mb": memory_bytes("RssFile") / 1e6,
    }
    print(json.dumps(costs))
    return 0


def _answer(segments: Path, cache: Path, question: Question) -> None:
    table = Table([segments], None, cache)
    while not table.refresh(10.0)["done"]:
        pass
    getattr(table, question.method)(question.query)


def _first_rows(segments: Path, cache: Path) -> None:
    table = Table([segments], None, cache)
    while True:
        table.refresh(0.1)
        if table.rows({"limit": 100})["rows"]:
            return


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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
        kind = source.random()
        name = "log" if kind < 0.03 else "engine.stats" if kind < 0.033 else "request"
        fields = _request(source, models) if name == "request" else _log(source) if name == "log" else _stats(source)
        severity = "INFO" if fields.get("outcome", "ok") == "ok" else "ERROR"
        head = {"timestamp": _stamp(at, source.randrange(1000)), "severity_text": severity, "event_name": name}
        yield orjson.dumps({**head, "boot_id": boot_id, "pid": 200 + pod, "seq": seq, **fields}) + b"\n"


def _ids(source: random.Random) -> dict[str, Any]:
    trace, span, request = (f"{source.getrandbits(bits):0{bits // 4}x}" for bits in (128, 64, 64))
    return {"trace_id": trace, "span_id": span, "trace_flags": "01", "request_id": request}


def _log(source: random.Random) -> dict[str, Any]:
    tokens = source.randrange(4000)
    message = f'retrieved {tokens} tokens from "cache" shard {tokens % 7}'
    attributes = {"n": tokens, "shard": f"s{tokens % 7}"}
    return {**_ids(source), "logger": "app.generate", "message": message, "attributes": attributes}


def _stats(source: random.Random) -> dict[str, Any]:
    return {
        "engine.running": source.randrange(64), "engine.waiting": source.randrange(20),
        "engine.kv_cache_usage": round(source.random(), 6), "engine.prefix_cache_hits": source.randrange(10000),
    }  # fmt: skip


def _request(source: random.Random, models: Sequence[str]) -> dict[str, Any]:
    route = source.choices(range(4), (70, 15, 12, 3))[0]
    chance = source.random()
    outcome = "ok" if chance > 0.02 else "error" if chance > 0.01 else "client_disconnect"
    duration = round(min(source.lognormvariate(0.4, 1.0), 600.0), 6)
    first, chunks = round(duration * source.uniform(0.05, 0.3), 6), source.randrange(1, 600)
    inputs, outputs = source.randrange(20, 6000), max(1, int(duration * source.uniform(20, 60)))
    queued = round(first * source.uniform(0.1, 0.6), 6)
    tenant = min(int(source.paretovariate(1.1)), 300)
    model = source.choice(models)
    error = {"error.type": source.choice(_ERRORS)} if outcome == "error" else {}
    operation = {"gen_ai.operation.name": _OPERATIONS[route]} if route < len(_OPERATIONS) else {}
    return {
        **_ids(source), "client_request_id": f"{source.getrandbits(128):032x}", "outcome": outcome, **error,
        "http.request.method": "POST",
        "url.path": _ROUTES[route] if route < len(_OPERATIONS) else f"/healthz/{source.randrange(50)}",
        "http.route": _ROUTES[route], "network.protocol.version": "1.1",
        "client.address": f"10.0.{tenant % 8}.{source.randrange(250)}",
        "http.response.status_code": 500 if outcome == "error" else 200, "http.request.body.size": inputs * 4,
        "http.response.body.size": outputs * 180, "duration_s": duration, "chunks": chunks,
        "gen_ai.response.time_to_first_chunk": first, "chunk_gap_min_us": source.randrange(8000),
        "chunk_gap_mean_us": int(duration / chunks * 1e6), "chunk_gap_max_us": source.randrange(8000, 90000),
        **operation, "gen_ai.request.model": model, "gen_ai.request.stream": True, "gen_ai.request.max_tokens": 1024,
        "gen_ai.request.temperature": 0.7, "gen_ai.response.id": f"chatcmpl-{source.getrandbits(96):024x}",
        "gen_ai.response.model": model, "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": inputs, "gen_ai.usage.output_tokens": outputs,
        "gen_ai.usage.cache_read.input_tokens": inputs // 3, "tenant.id": f"tenant-{tenant}",
        "enduser.id": f"user-{tenant * 37 % 5000}", "sampled_by": "head", "adjusted_count": 1.0,
        "usage_source": "response", "engine.queued_s": queued, "engine.prefill_s": round(first - queued, 6),
        "engine.decode_s": round(duration - first, 6), "engine.finish_reasons": ["stop"],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
