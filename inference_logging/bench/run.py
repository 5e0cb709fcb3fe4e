"""Runs the cells of the benchmark, each in a process of its own, and puts their figures together.

Every round visits every cell once, in an order of its own drawn from a fixed seed, so that what changes on the machine
meanwhile falls on no peer alone. Before the first round each peer is opened once: one whose library is missing, or does
not work here, is a row that says so.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata, util
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from inference_logging.bench.cell import DRAIN_S, Order
from inference_logging.bench.goals import goals
from inference_logging.bench.machine import file_system, load, machine
from inference_logging.bench.peers import NAMES, OURS, Peer, peers
from inference_logging.bench.record import SMALLEST_BYTES
from inference_logging.bench.result import (
    FIGURES,
    LOOPS,
    SCHEMA,
    CallTime,
    Cell,
    CellRound,
    Estimate,
    Loop,
    PeerEntry,
    Result,
)
from inference_logging.stats.interval import bootstrap, ratio

RATE_PER_S: Final = 4000.0
"""Records per second of the open loop, over all threads: what 100 streams of 40 tokens per second make with a record
per chunk. It is the same for all peers and all numbers of threads, so that nothing but the threads differs. Each peer
that writes to a file without waiting for the device can do it on its own; one that cannot is marked."""

_SEED: Final = 20240501
_START_S: Final = 30.0
"""How long a child may take besides its measurement and its drain: imports on a busy machine."""
_PROBE_S: Final = 0.01
_OTHERS_VARIABLES: Final = ("INFERENCE_LOGGING_", "FAPILOG_", "LOGURU_", "OTEL_", "UVICORN_")

Answer = dict[str, Any]
Key = tuple[str, int, Loop, int]
Item = TypeVar("Item")
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
    fapilog_method: bool = True

    def keys(self, names: Sequence[str]) -> list[Key]:
        """Return the cells of these peers, in the order of the result."""
        return list(product(names, self.threads, self.loops, self.sizes))

    def steps(self) -> int:
        """Return how many children there are at most."""
        return len(self.peers) * (1 + self.rounds) + self.rounds * len(self.keys(self.peers))


def run(plan: Plan, command: str, progress: Progress = lambda _step: None) -> Result:
    """Measure what is planned; ``progress`` is called before each child with its name."""
    load_before = load()
    chosen = tuple(peers(plan.peers))
    entries = [_entry(measured, progress) for measured in chosen]
    works = [entry["name"] for entry in entries if entry["missing"] is None]
    rounds: dict[Key, list[Answer]] = {key: [] for key in plan.keys(works)}
    calls: dict[str, list[Answer]] = {name: [] for name in works}
    for number in range(plan.rounds):
        for step in _shuffled([*rounds, *calls], number):
            if isinstance(step, str):
                progress(f"round {number + 1}: {step}, single calls")
                answer = ask(Order(step, 1, "call", SMALLEST_BYTES, plan.seconds / 3, RATE_PER_S, "", "", ""))
                calls[step].append({"round": number, **answer})
            else:
                progress(f"round {number + 1}: {step[0]}, {step[1]} threads, {step[2]} loop, {step[3]} bytes")
                answer = ask(Order(*step, plan.seconds, RATE_PER_S, "", "", ""))
                rounds[step].append({"round": number, **answer})
    result: Result = {
        "schema": SCHEMA,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "quick": plan.quick,
        "machine": machine(load_before, file_system(Path(tempfile.gettempdir()))),
        "rounds": plan.rounds,
        "seconds_per_cell": plan.seconds,
        "open_rate_per_s": {str(threads): RATE_PER_S for threads in plan.threads},
        "peers": entries,
        "cells": [_cell(key, rounds) for key in rounds],
        "filtered": _call_times(calls, "filtered_ns"),
        "enabled": _call_times(calls, "enabled_ns"),
        "fapilog": _fapilog(plan, works, progress),
        "goals": [],
    }
    result["goals"] = goals(result)
    return result


def ask(order: Order) -> Answer:
    """Measure one cell in a child, and return its answer; ``problem`` in it says why there are no figures."""
    with places() as (place, memory):
        answer = place / "answer.json"
        files = place / "files"
        files.mkdir()
        placed = Order(**{**vars(order), "files": str(files), "memory": str(memory), "answer": str(answer)})
        return child("inference_logging.bench.cell", placed.as_json(), answer, order.seconds * 4 + DRAIN_S + _START_S)


def child(module: str, order: str, answer: Path, limit_s: float) -> Answer:
    """Run a module as a child that gets ``order`` and writes ``answer``; a child that ends otherwise is a problem."""
    command = [sys.executable, "-m", module]
    with tempfile.TemporaryFile() as said:
        try:
            ended = subprocess.run(
                command,
                input=order.encode(),
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=_environment(),
                cwd=answer.parent,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"not done within {limit_s:g} s"}
        with suppress(OSError, ValueError):
            return cast("Answer", json.loads(answer.read_text(encoding="utf-8")))
        said.seek(0)
        last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
    return {"problem": f"the process ended with {ended.returncode}: {last}"}


@contextmanager
def places() -> Iterator[tuple[Path, Path]]:
    """Make a directory for files and one in memory, and remove both with all that a child has left there."""
    tmpfs = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="inference_logging-bench-"))
    memory = Path(tempfile.mkdtemp(prefix="inference_logging-bench-", dir=tmpfs if tmpfs.is_dir() else None))
    try:
        yield place, memory
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Return the environment of a child: without other settings of the peers, and with this package on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS_VARIABLES)}
    package = str(Path(__file__).parents[2])
    kept["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept


def _entry(measured: Peer, progress: Progress) -> PeerEntry:
    """Return the row of a peer; its library is tried in a child."""
    progress(f"{measured.name}: does it work here?")
    return {
        "name": measured.name,
        "title": measured.title,
        "library": measured.library,
        "version": _version(measured.library),
        "settings": measured.settings_text(),
        "ours": measured.ours,
        "lossless": measured.lossless,
        "writes": measured.writes,
        "missing": missing(measured.modules) or _does_not_work(measured),
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


def _does_not_work(measured: Peer) -> str | None:
    problem = ask(Order(measured.name, 1, "closed", SMALLEST_BYTES, _PROBE_S, RATE_PER_S, "", "", ""))["problem"]
    return None if problem is None else f"does not work here: {problem}"


def _version(library: str) -> str:
    if library == "inference_logging":
        from inference_logging import __version__

        return __version__
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(library)
    return "{}.{}.{}".format(*sys.version_info) if library in ("Python", "logging") else ""


def _shuffled(steps: Sequence[Item], number: int) -> list[Item]:
    order = list(steps)
    random.Random(_SEED + number).shuffle(order)
    return order


def _cell(key: Key, rounds: dict[Key, list[Answer]]) -> Cell:
    name, threads, loop, record_bytes = key
    good = [cast("CellRound", _without_problem(answer)) for answer in rounds[key] if answer["problem"] is None]
    ours = rounds.get((OURS, threads, loop, record_bytes), [])
    kept = [answer["kept_up"] for answer in good]
    return {
        "peer": name,
        "threads": threads,
        "loop": loop,
        "record_bytes": record_bytes,
        "figures": {figure: estimate([answer.get(figure) for answer in good]) for figure in FIGURES},
        "ratios_to_ours": {figure: _ratio(rounds[key], ours, figure) for figure in FIGURES},
        "accepted": sum(answer["accepted"] for answer in good),
        "arrived": sum(answer["arrived"] for answer in good),
        "refused": sum(answer["refused"] for answer in good),
        "kept_up": all(kept) if good and loop == "open" else None,
        "drained": all(answer["drained"] for answer in good),
        "problem": next((answer["problem"] for answer in rounds[key] if answer["problem"] is not None), None),
        "rounds": good,
    }


def _without_problem(answer: Answer) -> Answer:
    return {name: value for name, value in answer.items() if name != "problem"}


def estimate(values: Sequence[Any]) -> Estimate | None:
    """Return the median over rounds with its interval; None if a round has no value, or there is no round."""
    if not values or None in values:
        return None
    return cast("Estimate", bootstrap([float(value) for value in values]).as_json())


def _ratio(mine: Sequence[Answer], ours: Sequence[Answer], figure: str) -> Estimate | None:
    """Return ``mine`` ÷ ``ours``, each within its round; None where a round lacks one, or it is not above 0."""
    other = {answer["round"]: answer.get(figure) for answer in ours}
    pairs = [(answer.get(figure), other.get(answer["round"])) for answer in mine]
    if not pairs or not all(above and below for above, below in pairs):
        return None
    return cast("Estimate", ratio([above for above, _ in pairs], [below for _, below in pairs]).as_json())


def _call_times(calls: dict[str, list[Answer]], figure: str) -> list[CallTime]:
    times: list[CallTime] = []
    for name, answers in calls.items():
        values = [answer.get(figure) for answer in answers]
        found = estimate(values)
        if found is not None:
            to_ours = _ratio(answers, calls.get(OURS, []), figure)
            times.append({"peer": name, "ns": found, "rounds": cast("list[float]", values), "ratio_to_ours": to_ours})
    return times


def _fapilog(plan: Plan, works: Sequence[str], progress: Progress) -> Any:
    if not plan.fapilog_method or "fapilog" not in works or OURS not in works:
        return None
    from inference_logging.bench.fapilog_method import compared

    return compared(plan.rounds, progress, quick=plan.quick)
