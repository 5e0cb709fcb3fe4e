"""How often the crash tests kill, by which seed, and what they found: printed at the end of the run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, Final

import pytest

from inference_logging import Config
from tests.crash.producing import produce
from tests.crash.stage import Produce, Stage, directories
from tests.crash.verdict import Figures, drain, judge
from tests.kit.signatures import Configure

KILLS: Final = int(os.environ.get("CRASH_KILLS", "5"))
"""How many processes each test kills, at least."""
SEED: Final = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(1 << 32)))

Play = Callable[..., Figures]

# Each act is judged by itself, so that its segments need not be kept.
_KILLS_OF_AN_ACT: Final = 20
_FIGURES: Final = "crash figures"


@pytest.fixture
def play(request: pytest.FixtureRequest, configure: Configure) -> Play:
    """Play a script, each time with directories of its own, until enough is killed; judge each time; keep the figures.

    Whatever parameter of the configuration is given is as given. A slow script has ``usual_kills``: fewer, unless
    CRASH_KILLS says how many.
    """
    name = request.node.name

    def play(
        script: Callable[[Stage], None],
        produce: Produce = produce,
        recover: Callable[[Config], object] = lambda config: None,
        judge: Callable[..., Figures] = judge,
        usual_kills: int = KILLS,
        **parameters: Any,
    ) -> Figures:
        figures, seeds = Figures(), random.Random(f"{SEED} {name}")
        kills = KILLS if "CRASH_KILLS" in os.environ else usual_kills
        request.node.add_report_section("call", "crash", f"CRASH_SEED={SEED} CRASH_KILLS={kills}")
        while figures.kills < kills:
            config = configure(**parameters)
            with Stage(config, seeds.randrange(1 << 32), min(kills, _KILLS_OF_AN_ACT), produce) as stage:
                script(stage)
                stage.end()
                recover(config)
                figures += judge(config, stage.journal, drain(config), stage.kills)
            queues = config.resolved_queue_directory
            for directory in [*directories(config), *queues.parent.glob(f"{queues.name}*")]:
                shutil.rmtree(directory)
        request.node.user_properties.append((_FIGURES, figures._asdict()))
        return figures

    return play


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures = {
        report.nodeid.rpartition("::")[2]: Figures(**found)
        for report in terminalreporter.getreports("passed")
        for name, found in report.user_properties
        if name == _FIGURES and report.when == "call"
    }
    if not figures:
        return
    terminalreporter.section(f"crash tests, CRASH_SEED={SEED} CRASH_KILLS={KILLS}")
    for name, one in {**figures, "all": reduce(add, figures.values())}.items():
        numbers = ", ".join(f"{value:,} {field.replace('_', ' ')}" for field, value in one._asdict().items())
        terminalreporter.write_line(f"{name}: {numbers}")
