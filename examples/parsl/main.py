"""Parsl: what the submit process, the interchange, the managers and the workers log, in one place and in order.

Run:  python main.py [DIRECTORY]      (default: ./logs; needs `pip install parsl`)

Parsl's own benchmark runs with it, too: `parsl-perf --config main.py`.
"""

import sys
from collections import Counter
from pathlib import Path

import parsl
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

from inference_logging import Config
from inference_logging.parsl import ParslLogging
from inference_logging.segments import read_records

TASKS = 100


def configuration(directory: Path) -> parsl.Config:
    # DEBUG: all that Parsl would write to its own files.
    logged = Config(service_name="parsl", directory=directory, level="DEBUG")
    executor = HighThroughputExecutor(
        address="127.0.0.1", max_workers_per_node=2, provider=LocalProvider(init_blocks=1, max_blocks=1)
    )
    return parsl.Config(
        executors=[executor],
        initialize_logging=ParslLogging(logged, worker_level="INFO"),
        run_dir=str(directory / "runinfo"),
        strategy="none",
        strategy_period=0.5,
    )


def fresh_config() -> parsl.Config:
    return configuration(Path("logs"))


@parsl.python_app
def double(number: int) -> int:
    return 2 * number


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "logs")
    with parsl.load(configuration(directory)):
        print(sum(task.result() for task in [double(number) for number in range(TASKS)]))
    lines = Counter(record["logger"] for record in read_records(directory) if record["event_name"] == "log")
    for logger, count in lines.most_common():
        print(f"{count:6} {logger}")


if __name__ == "__main__":
    main()
