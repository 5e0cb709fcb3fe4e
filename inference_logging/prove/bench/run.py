"""Runs the cells of the benchmark, each in a process of its own, and puts their figures together.

Every round visits every cell once, in an order of its own drawn from a fixed seed, so that what changes on the machine
meanwhile falls on no peer alone. A peer whose library is missing, or does not work here in any cell, is a row that says
so. A cell that has failed once is not tried again: one that is stuck takes half a minute.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib import metadata, util
from itertools import product
from typing import Any, Final, cast

from inference_logging.prove.bench.cell import DRAIN_S, Order
from inference_logging.prove.bench.child import Answer, child, places
from inference_logging.prove.bench.machine import machine
from inference_logging.prove.bench.peers import NAMES, Peer, peers
from inference_logging.prove.bench.record import SMALLEST_BYTES
from inference_logging.prove.bench.result import (
    FIGURES,
    LOOPS,
    SCHEMA,
    CallTime,
    Cell,
    Estimate,
    Loop,
    PeerEntry,
    Result,
)
from inference_logging.read.stats.interval import bootstrap

RATE_PER_S: Final = 4000.0
"""Records per second of the open loop, over all threads: what 100 streams of 40 tokens per second make with a record
per chunk. It is the same for all peers and all numbers of threads, so that nothing but the threads differs. Each peer
that writes to a file without waiting for the device can do it on its own; one that cannot is marked."""

_SEED: Final = 20240501
_START_S: Final = 30.0
"""How long a child may take besides its measurement and its drain: imports on a busy machine."""

Answers = dict[Order, list[Answer]]
"""What each cell has answered, round by round."""
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    peers: tuple[str, ...] = NAMES
    threads: tuple[int, ...] = (1, 16, 64)
    loops: tuple[Loop, ...] = LOOPS
    sizes: tuple[int, ...] = (256, 4096)
    rounds: int = 3
    seconds: float = 0.3
    quick: bool = False

    def steps(self) -> int:
        """Return how many cells are measured at most, over all rounds."""
        return self.rounds * len(self.orders(self.peers))

    def orders(self, names: Sequence[str]) -> list[Order]:
        """Return the cells of these peers in the order of the result, then their single calls."""
        kinds = product(names, self.threads, self.loops, self.sizes)
        loads = [Order(name, threads, loop, size, self.seconds, RATE_PER_S) for name, threads, loop, size in kinds]
        return loads + [Order(name, 1, "call", SMALLEST_BYTES, self.seconds / 3, RATE_PER_S) for name in names]


def run(plan: Plan, command: str, progress: Progress = lambda _step: None) -> Result:
    """Measure what is planned; ``progress`` is called before each child with its name."""
    place = machine()
    entries = [_entry(measured) for measured in peers(plan.peers)]
    answers: Answers = {order: [] for order in plan.orders([row["name"] for row in entries if row["missing"] is None])}
    for number in range(plan.rounds):
        for order in _shuffled(list(answers), number):
            if all(answer["problem"] is None for answer in answers[order]):
                progress(f"round {number + 1} of {plan.rounds}: {order.peer}, {order.threads} threads, {order.loop}")
                answers[order].append({"round": number, **ask(order)})
    works = _working(entries, answers)
    return {
        "schema": SCHEMA,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "quick": plan.quick,
        "machine": place,
        "rounds": plan.rounds,
        "seconds_per_cell": plan.seconds,
        "open_rate_per_s": RATE_PER_S,
        "peers": entries,
        "cells": [_cell(order, answers) for order in answers if order.loop != "call" and order.peer in works],
        "filtered": _call_times(answers),
    }


def ask(order: Order) -> Answer:
    """Measure one cell in a child, and return its answer; ``problem`` in it says why there are no figures."""
    with places() as (place, memory):
        answer = place / "answer.json"
        files = place / "files"
        files.mkdir()
        placed = replace(order, files=str(files), memory=str(memory), answer=str(answer))
        limit_s = order.seconds * 4 + DRAIN_S + _START_S
        return child("inference_logging.prove.bench.cell", json.dumps(asdict(placed)), answer, limit_s)


def _entry(measured: Peer) -> PeerEntry:
    """Return the row of a peer."""
    return {
        "name": measured.name,
        "title": measured.title,
        "library": measured.library,
        "version": _version(measured.library),
        "settings": measured.settings_text(),
        "ours": measured.ours,
        "writes": measured.writes,
        "missing": missing(measured.modules),
    }


def missing(modules: Sequence[tuple[str, str]]) -> str | None:
    """Return which distributions are not installed, of pairs of a module and its distribution; None if all are."""
    absent = [distribution for module, distribution in modules if not _is_installed(module)]
    return f"not installed: {', '.join(absent)} (pip install 'inferlog[bench]')" if absent else None


def _is_installed(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _working(entries: Sequence[PeerEntry], answers: Answers) -> set[str]:
    """Return the peers that have a figure; the rows of others get the reason."""
    works = set()
    for entry in entries:
        problems = [answer["problem"] for order in answers if order.peer == entry["name"] for answer in answers[order]]
        if None in problems:
            works.add(entry["name"])
        elif problems:
            entry["missing"] = f"does not work here: {problems[0]}"
    return works


def _version(library: str) -> str:
    if library == "inference_logging":
        from inference_logging import __version__

        return __version__
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(library)
    return "{}.{}.{}".format(*sys.version_info) if library in ("Python", "logging") else ""


def _shuffled(orders: Sequence[Order], number: int) -> list[Order]:
    return random.Random(_SEED + number).sample(orders, len(orders))


def _cell(order: Order, answers: Answers) -> Cell:
    good = [
        {name: value for name, value in answer.items() if name != "problem"}
        for answer in answers[order]
        if answer["problem"] is None
    ]
    return {
        "peer": order.peer,
        "threads": order.threads,
        "loop": cast("Loop", order.loop),
        "record_bytes": order.record_bytes,
        "figures": {figure: estimate([answer.get(figure) for answer in good]) for figure in FIGURES},
        "accepted": sum(answer["accepted"] for answer in good),
        "arrived": sum(answer["arrived"] for answer in good),
        "refused": sum(answer["refused"] for answer in good),
        "kept_up": all(answer["kept_up"] for answer in good) if good and order.loop == "open" else None,
        "drained": all(answer["drained"] for answer in good),
        "problem": next((answer["problem"] for answer in answers[order] if answer["problem"] is not None), None),
        "rounds": good,
    }


def estimate(values: Sequence[Any]) -> Estimate | None:
    """Return the median over rounds with its interval; None if a round has no value, or there is no round."""
    if not values or None in values:
        return None
    return cast("Estimate", bootstrap([float(value) for value in values]).as_json())


def _call_times(answers: Answers) -> list[CallTime]:
    times: list[CallTime] = []
    for order in (order for order in answers if order.loop == "call"):
        values = [answer.get("filtered_ns") for answer in answers[order]]
        found = estimate(values)
        if found is not None:
            times.append({"peer": order.peer, "ns": found, "rounds": cast("list[float]", values)})
    return times
