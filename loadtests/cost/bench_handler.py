"""What a record costs the standard library's loggers, by turns in one process: beside `NullHandler` and `QueueHandler`.

    python -m loadtests.cost.bench_handler [--quick] [--json PATH]

Contenders take turns in blocks of calls, in an order by chance; each figure is of one round, and a ratio is taken
within it. What `NullHandler` costs is the `LogRecord` and the way to a handler, which all have in common: it is taken
off. The control is a second `NullHandler`. Nobody takes from the `QueueHandler`'s queue within a block, so what the
thread of a `QueueListener` takes from the caller is not in its figure. An empty call has the same arguments: of a
call with ten extras it is the part that the caller spends on their dictionary.
"""

from __future__ import annotations

import gc
import logging
import queue
import random
from collections.abc import Callable
from contextlib import ExitStack
from logging.handlers import QueueHandler
from typing import Any, Final

from inference_logging import Handler, get_logger
from inference_logging.record.integrations.native_logger import NativeLogger
from loadtests import harness
from loadtests.cost.loggers import ours
from loadtests.harness import Report, at_least, at_most, memory_directory, ratios, scratch_directory

CALLS: Final = 40
"""Calls of a block: few enough that a busy machine leaves most blocks alone."""
ROUNDS: Final = 600
WARM_UP: Final = 20
FLUSH_EVERY: Final = 50

Block = Callable[[], None]
Rounds = dict[str, list[float]]


def main() -> None:
    """Measure and print."""
    options = harness.parser(__doc__).parse_args()
    rounds = 2 if options.quick else ROUNDS
    how = "microseconds of a call, median (interval of 95 %)"
    harness.measured(
        options, "python -m loadtests.cost.bench_handler", how, lambda: {"sections": harness.sections([report(rounds)])}
    )


def report(rounds: int) -> Report:
    """Measure all contenders in so many rounds."""
    found = measure(rounds)
    made = Report("the standard library's loggers: what a record costs the caller")
    for extras in ("no extra", "ten extras"):
        null, again, handler, queued = (found[f"{name}, {extras}"] for name in ("null", "null again", "ours", "queue"))
        made.add(f"NullHandler, {extras}", "µs", null)
        made.add(f"logging.Handler above it, {extras}", "µs", _above(handler, null), at_most(1.5))
        made.add(f"the control above it, {extras}", "µs", _above(again, null))
        made.add(f"QueueHandler above it, {extras}", "µs", _above(queued, null))
        made.add(f"QueueHandler ÷ ours, each above it, {extras}", "×",
                 ratios(_above(queued, null), _above(handler, null)), at_least(5))  # fmt: skip
    queued, empty = found["queue, ten extras"], found["empty, ten extras"]
    made.add("an empty call, ten extras", "µs", empty)
    for name in ("install_logger()", "get_logger()"):
        call = found[f"{name}, ten extras"]
        made.add(f"{name}, ten extras", "µs", call)
        made.add(f"QueueHandler ÷ {name}, ten extras", "×", ratios(queued, call), at_least(15))
    native = _above(found["install_logger(), ten extras"], empty)
    made.add("QueueHandler ÷ install_logger(), each above the empty call", "×", ratios(_above(queued, empty), native))
    return made


def _above(call: list[float], null: list[float]) -> list[float]:
    return [one - other for one, other in zip(call, null, strict=True)]


def measure(rounds: int) -> Rounds:
    """Return the microseconds of a call of each contender, by rounds."""
    records: queue.Queue[Any] = queue.Queue()
    with ExitStack() as stack:
        logger = stack.enter_context(ours(stack.enter_context(scratch_directory(memory_directory()))))
        blocks: dict[str, Block] = {
            "install_logger(), ten extras": _with_extra(_logger(Handler(), NativeLogger).info),
            "get_logger(), ten extras": _with_keywords(get_logger("bench").info),
            "empty, ten extras": _with_extra(_ignore),
        }
        handlers = {
            "null": logging.NullHandler(), "null again": logging.NullHandler(), "ours": Handler(),
            "queue": QueueHandler(records),
        }  # fmt: skip
        for name, handler in handlers.items():
            blocks[f"{name}, no extra"] = _plain(_logger(handler).info)
            blocks[f"{name}, ten extras"] = _with_extra(_logger(handler).info)
        gc.disable()
        stack.callback(gc.enable)
        found: Rounds = {name: [] for name in blocks}
        for number in range(-min(WARM_UP, rounds), rounds):
            for name in random.sample(list(blocks), len(blocks)):
                taken_s = harness.seconds(blocks[name])
                records.queue.clear()
                if number >= 0:
                    found[name].append(taken_s / CALLS * 1e6)
            if number % FLUSH_EVERY == 0:
                logger.flush()
                gc.collect()
        if logger.stats()["accepted"] < rounds * CALLS * 4:
            raise RuntimeError(f"records were refused: {logger.stats()}")
    return found


def _logger(handler: logging.Handler, kind: type[logging.Logger] = logging.Logger) -> logging.Logger:
    logger = kind("bench", logging.INFO)  # outside the tree, with one handler
    logger.manager = logging.Logger.manager  # as `logging.getLogger` does it
    logger.addHandler(handler)
    return logger


def _ignore(_message: object, *, extra: object) -> None:
    pass


def _plain(info: Callable[..., object]) -> Block:
    def block() -> None:
        for _ in range(CALLS):
            info("request done")

    return block


def _with_extra(info: Callable[..., object]) -> Block:
    def block() -> None:
        for number in range(CALLS):
            info("request done", extra={
                "method": "POST", "path": "/v1/chat/completions", "status": 200, "duration_s": 0.0123,
                "model": "llama-3.1-8b", "stream": True, "error": None, "tokens": number, "user": "user-7f3a9c",
                "cost": 0.5,
            })  # fmt: skip

    return block


def _with_keywords(info: Callable[..., object]) -> Block:
    def block() -> None:
        for number in range(CALLS):
            info(
                "request done", method="POST", path="/v1/chat/completions", status=200, duration_s=0.0123,
                model="llama-3.1-8b", stream=True, error=None, tokens=number, user="user-7f3a9c", cost=0.5,
            )  # fmt: skip

    return block


if __name__ == "__main__":
    main()
