"""What logging costs a task of Parsl's HighThroughputExecutor, as ratios to no logging: ``make bench-parsl``.

    python -m loadtests.engine.bench_parsl [--quick] [--json PATH]

Programs without logging, the same once more (the control), with Parsl's own files and with ours take turns in an order
that rotates. A ratio is taken within its turn. That each message of each process is a record, also of a worker that is
killed, tests/integrations/test_parsl.py proves. loadtests/README.md says more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests import harness
from loadtests.harness import ROOT, Child, memory_directory, scratch_directory

VENV: Final = ROOT / ".venv-parsl"
MODES: Final = ("off", "control", "default", "ours")


class Program:
    """``parsl_load.py`` in one mode, running."""

    def __init__(self, mode: str, directory: Path, queues: Path, workers: int = 1) -> None:
        """Start it. Raises ``RuntimeError`` with its output if it does not get ready."""
        self.directory, self.queues = directory, queues
        command = (VENV / "bin" / "python", Path(__file__).with_name("parsl_load.py"), mode, directory, str(workers))
        self._child = Child(*command, said=directory / "stderr", cwd=directory, env=environment(queues))
        self._child.hear("ready")

    def ms_per_task(self, tasks: int) -> float:
        """Run a batch of empty tasks."""
        self._child.say(str(tasks))
        return 1000 / float(self._child.hear(r"Tasks per second: ([\d.]+)")[1])

    def kill_a_worker(self) -> None:
        """Let a task kill its worker, and wait until Parsl has noticed."""
        self._child.say("die")
        self._child.hear("WorkerLost")

    def end(self) -> None:
        """Let Parsl end in order."""
        self._child.end()

    def kill(self) -> None:
        """End what is left of it, and its interchange; a manager ends by itself when it finds that gone."""
        self._child.kill()


def environment(queues: Path) -> dict[str, str]:
    """Return the environment of a program: Parsl's commands on the path, this checkout, and its own queues."""
    variables = harness.environment(queue_directory=queues)
    path = f"{VENV / 'bin'}{os.pathsep}{variables['PATH']}"
    return variables | {"PATH": path, "PYTHONPATH": str(ROOT)}


def missing() -> str | None:
    """Return what is missing; None if the measurement can run."""
    return None if (VENV / ".stamp-installed").exists() else f"{VENV.name}: `make parsl` sets it up"


@contextmanager
def running(mode: str, workers: int = 1) -> Iterator[Program]:
    """Run a program, on whose files nobody else writes; it is killed unless it was ended."""
    with scratch_directory() as directory, scratch_directory(memory_directory()) as queues:
        program = Program(mode, directory, queues, workers)
        try:
            yield program
        finally:
            program.kill()


def turns(rounds: int, turns_of_round: int, tasks: int) -> dict[str, list[float]]:
    """Return milliseconds per task of each mode, turn by turn."""
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        with ExitStack() as stack:
            programs = {mode: stack.enter_context(running(mode)) for mode in MODES}
            for program in programs.values():
                program.ms_per_task(tasks // 4)
            for turn in range(turns_of_round):
                first = (number + turn) % len(MODES)
                for mode in (*MODES[first:], *MODES[:first]):
                    taken[mode].append(programs[mode].ms_per_task(tasks))
            for program in programs.values():
                program.end()
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return taken


def summary(taken: dict[str, list[float]]) -> dict[str, Interval]:
    """Return the median time per task of each mode, and the ratios."""
    found = {f"{mode}, ms per task": bootstrap(values, median) for mode, values in taken.items()}
    pairs = (("control", "off"), ("default", "off"), ("ours", "off"), ("ours", "default"))
    return found | {f"{one} ÷ {other}": ratio(taken[one], taken[other]) for one, other in pairs}


def goals(found: dict[str, Interval]) -> list[dict[str, Any]]:
    """Return each goal, whether it is reached, and by what."""
    ours, control, default = (found[name] for name in ("ours ÷ off", "control ÷ off", "ours ÷ default"))
    return [
        {
            "goal": "a task with ours takes as long as without logging, within the noise: the intervals of ours ÷ off "
            "and of control ÷ off meet",
            "reached": ours.low <= control.high,
            "because": f"{ours} and {control}",
        },
        {
            "goal": "a task with ours takes less time than with Parsl's own files: ours ÷ default is below 1",
            "reached": default.high < 1,
            "because": str(default),
        },
    ]


def main() -> None:
    """Measure, count and print."""
    options = harness.parser(__doc__).parse_args()
    if (lacking := missing()) is not None:
        print(f"NOT MEASURED: missing: {lacking}")
        return
    rounds, turns_of_round, tasks = (1, 2, 50) if options.quick else (5, 8, 1000)

    def measure() -> dict[str, Any]:
        taken = turns(rounds, turns_of_round, tasks)
        found = summary(taken)
        for name, interval in found.items():
            print(f"  {name:<24} {interval}")
        for goal in goals(found):
            print(f"  {'reached' if goal['reached'] else 'NOT REACHED'}: {goal['goal']} ({goal['because']})")
        figures = {name: interval.as_json() for name, interval in found.items()}
        return {"figures": figures, "goals": goals(found), "ms_per_task": taken}

    how = f"HighThroughputExecutor, one worker, batches of {tasks} tasks, {rounds} x {turns_of_round} turns"
    harness.measured(options, "make bench-parsl", f"{how}; median or mean ratio (interval of 95 %)", measure)


if __name__ == "__main__":
    main()
