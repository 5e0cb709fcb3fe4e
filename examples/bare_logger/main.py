"""A bare logger, without a web server: register an event's fields once, then pass values only.

Run:  python main.py [DIRECTORY]      (default: ./logs)

That is the fastest way in, for a loop that cannot spare a microsecond: a scheduler, a sampler, a data loader.
"""

import sys
import time
from pathlib import Path

from inference_logging import Config, Json, Logger

STEPS = 100_000


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "logs")
    with Logger(Config(directory=directory, service_name="bare-example", queue_bytes="64MiB")) as logger:
        step = logger.event("engine.step", ["step", "running", "waiting", "kv_cache_usage", "note"])
        start = time.perf_counter()
        refused = sum(not step(i, 3, 17, 0.71, None) for i in range(STEPS))  # never blocks, never raises
        each_us = (time.perf_counter() - start) / STEPS * 1e6
        step(STEPS, 0, 0, 0.0, Json(b'{"encoded": "already"}'))
        logger.flush()  # not needed: closing drains too
        written = logger.stats()["written"]
    print(f"{written:,} records written, {refused:,} refused; {each_us:.2f} µs each, the loop included")
    print(f"the last lines are in {directory / 'latest'}")


if __name__ == "__main__":
    main()
