"""What a call of the standard library's loggers costs its caller, with our methods and without.

``stdlib``: one process, one thread; each round times the contenders in turn, batches of 1,000 calls with the loop
included, nothing subtracted. The message takes two arguments. *Ours* is a native logger three below the root logger,
which has our handler. *QueueHandler* is the documented recipe with a listener that drops what it takes, *NullHandler*
makes the record and drops it, *our Handler* is what an application has without `install_logger`. All levels are
decided once, as in an application that has run for a while. Between contenders both queues are drained. A ratio is
that of the same round; the interval is the bootstrap's over the rounds.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from operator import truediv
from statistics import median
from time import perf_counter_ns
from types import FunctionType
from typing import Any, Final

from bench_loggers import ours, scratch_directory
from bench_report import Report, at_least, at_most, pairwise
from inference_logging import Handler, install_logger
from inference_logging.read.stats.interval import ratio

Call = Callable[[logging.Logger], None]

BATCH: Final = 1000
_ENABLED: Final = ("ours", "QueueHandler", "NullHandler", "our Handler")
_FILTERED: Final = ("ours", "NullHandler")


def stdlib(quick: bool) -> Report:
    """Measure enabled calls, and those below the level."""
    rounds, batches = (3, 2) if quick else (31, 10)
    enabled: dict[str, list[float]] = {name: [] for name in _ENABLED}
    filtered: dict[str, list[float]] = {name: [] for name in _FILTERED}
    with scratch_directory() as directory, ours(directory) as mine, _contenders() as (loggers, drain):

        def settle() -> None:
            mine.settle()
            drain()

        log = {name: _copy(_log_many) for name in _ENABLED}
        log_below = {name: _copy(_log_many_below) for name in _FILTERED}
        for _ in range(rounds):
            for name in _ENABLED:
                enabled[name].append(_batch_us(loggers[name], log[name], batches, settle))
            for name in _FILTERED:
                filtered[name].append(_batch_us(loggers[name], log_below[name], batches, settle))
        accepted = mine.logger.stats()["accepted"]
    called = 2 * rounds * (batches + 1) * BATCH
    if accepted != called:
        raise RuntimeError(f"called {called} of ours, but {accepted} were accepted")
    return _report(enabled, filtered)


def _report(enabled: dict[str, list[float]], filtered: dict[str, list[float]]) -> Report:
    report = Report("stdlib: p50 of a call with two arguments, the standard library's loggers, one thread")
    for name, values in enabled.items():
        report.add(f"{name}, enabled", "µs", values)
    for name, values in filtered.items():
        report.add(f"{name}, below the level", "µs", values)
    goals = {"QueueHandler": at_least(15), "NullHandler": at_least(1), "our Handler": None}
    for name, goal in goals.items():
        report.add(f"{name} ÷ ours, enabled", "×", pairwise(truediv, enabled[name], enabled["ours"]), goal)
        report.remarks.append(f"{name} ÷ ours, enabled: {ratio(enabled[name], enabled['ours'])}")
    below = "ours ÷ the standard library's, below the level"
    report.add(below, "×", pairwise(truediv, filtered["ours"], filtered["NullHandler"]), at_most(1))
    report.remarks.append(f"{below}: {ratio(filtered['ours'], filtered['NullHandler'])}")
    return report


@contextmanager
def _contenders() -> Iterator[tuple[dict[str, logging.Logger], Callable[[], None]]]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.setLevel(logging.INFO)
    root.handlers.clear()
    records: queue.Queue[Any] = queue.Queue(-1)
    listener = QueueListener(records, logging.NullHandler())
    listener.start()
    others = {"QueueHandler": QueueHandler(records), "NullHandler": logging.NullHandler(), "our Handler": Handler()}
    undo = install_logger()
    try:
        # Those between are made, since a name alone has no place on a record's way.
        _, _, native = (logging.getLogger(name) for name in ("bench", "bench.stdlib", "bench.stdlib.ours"))
        loggers = {"ours": native}
        for name, handler in others.items():
            logger = logging.Logger(f"bench.stdlib.{name}", logging.INFO)  # noqa: LOG001 - of the library's own class
            logger.parent = root
            logger.propagate = False
            logger.addHandler(handler)
            loggers[name] = logger
        yield loggers, records.join
    finally:
        undo()
        listener.stop()
        root.setLevel(level)
        root.handlers[:] = handlers


def _log_many(logger: logging.Logger) -> None:
    for number in range(BATCH):
        logger.info("served %s in %d ms", "llama-3.1-8b", number)


def _log_many_below(logger: logging.Logger) -> None:
    for number in range(BATCH):
        logger.debug("served %s in %d ms", "llama-3.1-8b", number)


def _copy(call: Call) -> Call:
    # Each contender has a function of its own, since the interpreter fits its code to the class of logger.
    return FunctionType(call.__code__.replace(), call.__globals__)


def _batch_us(logger: logging.Logger, call: Call, batches: int, settle: Callable[[], None]) -> float:
    call(logger)  # the first calls after a pause find cold caches and a sleeping listener
    settle()
    taken = []
    for _ in range(batches):
        start = perf_counter_ns()
        call(logger)
        taken.append((perf_counter_ns() - start) / BATCH / 1000)
    settle()
    return median(taken)
