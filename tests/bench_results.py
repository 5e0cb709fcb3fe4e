"""A result of the benchmark, made up: in the form of a real one, with figures of no machine."""

from __future__ import annotations

import random
from typing import Any

from inference_logging.prove.bench.result import (
    FIGURES,
    SCHEMA,
    CallTime,
    Cell,
    CellRound,
    Estimate,
    PeerEntry,
    Result,
)
from loadtests.cost.growth import QUANTITIES, series_of
from loadtests.cost.growth_quantity import Sample

THREADS = (1, 16, 64)
SILENT = ("empty", "empty-again", "stdlib-null")
SIZES = (256, 4096)
HOSTILE = "a title <script>alert(1)</script> $\\bad{$ \u202eevil"
PEERS: dict[str, tuple[str, str, float, bool]] = {
    "empty": ("empty call (control)", "Python", 40, False),
    "empty-again": ("empty call, once more (noise)", "Python", 40, False),
    "stdlib-null": ("standard library, NullHandler", "logging", 900, False),
    "stdlib-sync": ("standard library, FileHandler", "logging", 9_000, True),
    "stdlib-fsync": ("standard library, FileHandler + fsync", "logging", 900_000, True),
    "stdlib-queue": ("standard library, QueueHandler", "logging", 6_300, True),
    "structlog": ("structlog + orjson", "structlog", 7_000, True),
    "loguru": ("loguru", "loguru", 20_000, True),
    "loguru-enqueue": (HOSTILE, "loguru", 30_000, True),
    "fapilog": ("fapilog, production preset", "fapilog", 60_000, True),
    "otel": ("OpenTelemetry, BatchLogRecordProcessor", "opentelemetry-sdk", 25_000, False),
    "ours-event": ("ours, event", "inferlog", 180, True),
    "ours-logger": ("ours, get_logger", "inferlog", 700, True),
    "ours-handler": ("ours, Handler", "inferlog", 8_900, True),
}


def estimate(value: float, half: float = 0.04) -> Estimate:
    return {"value": value, "low": value * (1 - half), "high": value * (1 + half)}


def round_of(number: int, p50_ns: float, accepted: int, arrived: int, refused: int, drained: bool) -> CellRound:
    return {
        "round": number,
        "p50_ns": p50_ns,
        "p99_ns": p50_ns,
        "p999_ns": p50_ns,
        "max_ns": p50_ns,
        "records_per_s": None,
        "interpreter_cpu_ns": None,
        "peak_bytes": None,
        "arrived_ratio": None,
        "kept_ratio": None,
        "calls": accepted + refused,
        "accepted": accepted,
        "refused": refused,
        "arrived": arrived,
        "seconds": 1.0,
        "drain_s": 0.0,
        "end_to_end_s": 1.0,
        "drained": drained,
        "kept_up": None,
    }


def cell(dice: random.Random, name: str, threads: int, loop: Any, record_bytes: int) -> Cell:
    cost_ns = PEERS[name][2] * (1 + record_bytes / 20_000) * dice.uniform(0.9, 1.1)
    if loop == "open":
        cost_ns = cost_ns * 4 + 60_000  # what waking up takes; the range is narrow, the labels are long
    counts = name not in SILENT
    accepted = 20_000 * threads
    arrived = accepted if name != "otel" else int(accepted * 0.61)
    refused, drained = 1000 if name == "ours-event" and threads == 64 else 0, name != "stdlib-fsync"
    if not drained:
        arrived = accepted // 2
    values: dict[str, float | None] = {
        "p50_ns": cost_ns,
        "p99_ns": cost_ns * dice.uniform(2, 5),
        "p999_ns": cost_ns * dice.uniform(5, 200) * threads,
        "max_ns": cost_ns * 3000 * threads,
        "records_per_s": 6e8 / cost_ns / threads**0.1 if counts else None,
        "interpreter_cpu_ns": cost_ns * 1.1,
        "peak_bytes": cost_ns * 20_000 if counts else 0.0,
        "arrived_ratio": arrived / accepted if counts else None,
        "kept_ratio": arrived / accepted if counts else None,
    }
    figures: dict[str, Estimate | None] = {}
    for figure in FIGURES:
        value = values[figure]
        figures[figure] = None if value is None else estimate(value)
    return {
        "peer": name,
        "threads": threads,
        "loop": loop,
        "record_bytes": record_bytes,
        "figures": figures,
        "ratios_to_ours": {},
        "accepted": accepted,
        "arrived": arrived if counts else 0,
        "refused": refused,
        "kept_up": None if loop == "closed" else name != "stdlib-fsync",
        "drained": drained,
        "problem": "round 2: the child ended with -9" if name == "fapilog" and threads == 64 else None,
        "rounds": [round_of(number, cost_ns, accepted, arrived, refused, drained) for number in range(2)],
    }


def made_up() -> Result:
    """Return a result with every kind of entry: a missing peer, a hostile title, losses, all verdicts."""
    dice = random.Random(5)
    peers: list[PeerEntry] = [
        {
            "name": name,
            "title": title,
            "library": library,
            "version": "1.0",
            "settings": f"{name}.configure(\n    level='INFO' & <b>,\n)",
            "ours": name.startswith("ours"),
            "lossless": lossless,
            "writes": name not in SILENT,
            "missing": None,
        }
        for name, (title, library, _, lossless) in PEERS.items()
    ]
    missing = "picologging has no wheel for Python 3.11 <here>"
    peers.append({**peers[0], "name": "picologging", "title": "picologging", "missing": missing})
    filtered: list[CallTime] = [
        {"peer": name, "ns": estimate(PEERS[name][2] / 20), "rounds": [], "ratio_to_ours": None}
        for name in ("stdlib-sync", "ours-logger")
    ]
    enabled: list[CallTime] = [
        {"peer": name, "ns": estimate(cost_ns), "rounds": [], "ratio_to_ours": None}
        for name, (_, _, cost_ns, _) in PEERS.items()
    ]
    return {
        "schema": SCHEMA,
        "made": "2026-11-24T10:00:00Z",
        "command": "inference-logging bench",
        "quick": False,
        "machine": {
            "cpu": "Some CPU <i>9</i>",
            "cores": 2,
            "memory_gib": 31.3,
            "kernel": "Linux 6.1",
            "python": "CPython 3.11.7",
            "load_before": [0.1, 0.2, 0.3],
            "load_after": [1.9, 1.2, 0.8],
            "files_on": "ext4",
        },
        "rounds": 5,
        "seconds_per_cell": 2.0,
        "open_rate_per_s": {str(threads): 2000.0 for threads in THREADS},
        "peers": peers,
        "cells": [
            cell(dice, name, threads, loop, size)
            for name in PEERS
            for loop in ("closed", "open")
            for size in SIZES
            for threads in THREADS
        ],
        "filtered": filtered,
        "enabled": enabled,
        "goals": [
            {"name": "all arrive", "goal": "= 1", "value": 1.0, "low": 1.0, "high": 1.0, "verdict": "reached"},
            {"name": "64 threads", "goal": "≤ 2", "value": 3.1, "low": 2.9, "high": 3.4, "verdict": "not reached"},
            {
                "name": "fapilog's sink",
                "goal": "≤ 1/200",
                "value": None,
                "low": None,
                "high": None,
                "verdict": "not measured: fapilog is missing",
            },
        ],
    }


def grown() -> dict[str, Any]:
    """Return what `make bench-growth` finds, made up."""
    found = []
    for quantity in QUANTITIES:
        samples = {
            x: [Sample(140.0 + step + round_, 80.0 + round_, 1000, 1000) for round_ in range(3)]
            for step, x in enumerate(quantity.places)
        }
        found.append(series_of(quantity, samples))
    return {"made": "2026-11-24T10:00:00Z", "command": "make bench-growth", "quick": False, "growth": found}
