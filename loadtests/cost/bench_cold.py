"""What a request costs where the processor's caches are cold, by turns in one process: ours and the thinnest wrapper.

    python -m loadtests.cost.bench_cold [--quick] [--json PATH]

A copy of 4 MiB before each request empties the caches of interpreter, wrapper and application. The first lines of each
table are without that copy; a server is between the two. A round is a block of requests of each arm in random order.
Its figure is their median, less that of the application alone. The control is a second thinnest wrapper.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware, Logger
from inference_logging.prove.bench.configurations_round import GET, POST, Kind, application, ignore
from loadtests import harness
from loadtests.cost.loggers import our_config
from loadtests.harness import Report, memory_directory, ratios, scratch_directory
from loadtests.turns.thinnest import Thinnest

REQUESTS: Final = 20
ROUNDS: Final = 100
WARM_UP: Final = 5
COPIED_BYTES: Final = (0, 4 << 20)
NONE, THINNEST, AGAIN, OURS = ARMS = ("none", "thinnest", "thinnest again", "ours")


def main() -> None:
    """Measure and print."""
    options = harness.parser(__doc__).parse_args()
    rounds = 6 if options.quick else ROUNDS
    how = "microseconds of a request, median (interval of 95 %)"
    reports = (report(kind, rounds) for kind in (GET, POST))
    command = "python -m loadtests.cost.bench_cold"
    harness.measured(options, command, how, lambda: {"sections": harness.sections(reports)})


def report(kind: Kind, rounds: int) -> Report:
    """Measure all arms in so many rounds, with warm and with cold caches."""
    made = Report(f"{kind.name}: what is added where the caches are warm, and where they are cold")
    for size in COPIED_BYTES:
        where = f"{size >> 20} MiB copied before" if size else "nothing copied before"
        found = measure(kind, size, rounds)
        thinnest, again, ours = (
            [one - none for one, none in zip(found[arm], found[NONE], strict=True)] for arm in (THINNEST, AGAIN, OURS)
        )
        made.add(f"thinnest wrapper, {where}", "µs", thinnest)
        made.add(f"ours, {where}", "µs", ours)
        made.add(f"ours ÷ thinnest wrapper, {where}", "×", ratios(ours, thinnest))
        made.add(f"the control ÷ thinnest wrapper, {where}", "×", ratios(again, thinnest))
    return made


def measure(kind: Kind, size: int, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of a request of each arm, by rounds."""
    taken, given = bytearray(size), bytes(size)
    with ExitStack() as stack:
        directory = stack.enter_context(scratch_directory(memory_directory()))
        config = stack.enter_context(our_config(directory, server_record="off"))
        logger = stack.enter_context(Logger(config))
        ours = InferenceLoggingMiddleware(application, config)
        wrapped = (Thinnest(application), Thinnest(application), ours)
        apps: dict[str, Any] = dict(zip(ARMS, (application, *wrapped), strict=True))
        gc.disable()
        stack.callback(gc.enable)
        found: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for number in range(-WARM_UP, rounds):
            block: dict[str, list[float]] = {arm: [] for arm in ARMS}
            for arm in random.sample(ARMS * REQUESTS, len(ARMS) * REQUESTS):
                request: Any = apps[arm](kind.scope(), kind.receive, ignore)
                taken[:] = given
                begun = time.perf_counter_ns()
                _run(request)
                block[arm].append((time.perf_counter_ns() - begun) / 1000)
            logger.flush()
            gc.collect()
            if number >= 0:
                for arm, times in block.items():
                    found[arm].append(median(times))
        if logger.stats()["accepted"] < rounds * REQUESTS:
            raise RuntimeError(f"records were refused: {logger.stats()}")
    return found


def _run(request: Coroutine[Any, Any, None]) -> None:
    try:
        request.send(None)
    except StopIteration:
        return
    raise RuntimeError("the application waits for something that is not there")


if __name__ == "__main__":
    main()
