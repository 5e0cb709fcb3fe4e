"""Every example in a help text runs as it stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click
import pytest

from inference_logging.cli.main import COMMANDS
from inference_logging.cli.main import command as root
from tests.segment_files import log, request, write_segment

STEERING = (*("ab", "bench", "ctl", "export", "listen", "proxy", "recover", "replay", "run", "ship", "verify", "view"),)
"""Commands that need a server, a destination, what a server really wrote, or minutes; their own tests run examples."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Iterate over the commands and the commands within them, with the words that call them."""
    context = click.Context(root)
    for name in sorted(set(COMMANDS) - set(STEERING)):
        command = root.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield f"{name} {inner}", found


def examples_of(command: click.Command) -> list[str]:
    _, _, lines = (command.epilog or "").partition("Examples:\n")
    return [line.strip() for line in lines.splitlines()]


EXAMPLES = [example for _, command in commands() for example in examples_of(command)]
EXAMPLES += [COMMANDS[name].example for name in COMMANDS if name not in STEERING]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory as somebody has it who tries the examples: a configuration, and segments in `logs`."""
    made = tmp_path_factory.mktemp("examples")
    (made / "logging.yaml").write_text("version: 1\nservice_name: inference\nflush_interval_s: 0.2\n")
    (made / "new.yaml").write_text("version: 1\nservice_name: inference\nsample_ratio: 0.1\n")
    (made / "logs").mkdir()
    records = [request(second, "error" if second == 3 else "ok", duration_s=second) for second in range(10)]
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    more = log(11, "hello", trace_id=trace, attributes={"n": 1, "stream": True})
    segment = write_segment(made / "logs", [*records, more], prefix="inference")
    (made / "logs" / "latest").symlink_to(segment.name)
    scripts = made / "bin"
    scripts.mkdir()
    command = scripts / "inference-logging"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m inference_logging.cli.main "$@"\n')
    command.chmod(0o755)
    return made


@pytest.fixture
def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--follow" not in example])
def test_the_example_runs(example: str, directory: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", example],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    is_past = "stats" in example and "--since 2h" in example  # the records are of a day in 2026
    nothing = "inference-logging stats: nothing: no request arrived in that time\n" if is_past else ""
    assert (done.returncode, done.stderr) == (0, nothing)
    assert done.stdout or "> " in example


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--follow" in example])
def test_the_example_that_follows_shows_new_records_until_it_is_interrupted(
    example: str, directory: Path, environment: dict[str, str]
) -> None:
    seen = threading.Event()

    def write() -> None:
        # Again and again, since what stands there before the command looks is not new to it.
        for number in count(100):
            record = log(number, "news", attributes={"stream": True})
            write_segment(directory / "logs", [record], number=number, second=number)
            if seen.wait(0.2):
                return

    writer = threading.Thread(target=write)
    with subprocess.Popen(
        ["bash", "-c", f"exec {example}"], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        writer.start()
        try:
            assert process.stdout is not None
            assert "news" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            seen.set()
            process.kill()
            writer.join()


def test_every_command_shows_its_examples_in_its_help() -> None:
    assert len(EXAMPLES) > 12
    for name, command in commands():
        if isinstance(command, click.Group):
            continue
        shown = command.get_help(click.Context(command, info_name=name, terminal_width=78, max_content_width=78))
        assert examples_of(command), name
        for example in examples_of(command):
            assert f"  {example}\n" in f"{shown}\n", example


def test_the_examples_of_a_command_call_it() -> None:
    for name, command in commands():
        for example in examples_of(command):
            assert re.search(rf"inference-logging {name}\b", example), example
