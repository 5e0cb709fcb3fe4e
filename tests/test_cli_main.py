"""The command line as a shell sees it: what is listed, what is imported, how it ends."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import click
import pytest

from inference_logging import Config
from inference_logging.cli.main import COMMANDS, Entry, run


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """Register a command whose option says how it ends."""

    @click.command()
    @click.option("--raises", default="")
    @click.option("--returns", type=int)
    @click.option("--prints", default=0)
    def command(raises: str, returns: int | None, prints: int) -> int | None:
        for _ in range(prints):
            click.echo("x" * 100)
        ends: dict[str, BaseException] = {
            "interrupt": KeyboardInterrupt(),
            "missing": FileNotFoundError(2, "No such file", "queues"),
            "finding": click.exceptions.Exit(1),
            "failure": click.ClickException("it does not work"),
        }
        if raises:
            raise ends[raises]
        return returns

    monkeypatch.setitem(COMMANDS, "probe", Entry("Look at nothing.", "inference-logging probe --prints 3"))
    monkeypatch.setitem(sys.modules, "inference_logging.cli.probe", SimpleNamespace(command=command))
    return command


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["probe"], 0),
        (["probe", "--returns", "1"], 1),
        (["probe", "--raises", "finding"], 1),
        (["probe", "--raises", "failure"], 1),
        (["probe", "--raises", "missing"], 1),
        (["probe", "--raises", "interrupt"], 130),
        (["probe", "--prints", "many"], 2),
        (["prob"], 2),
        (["--help"], 0),
        (["--version"], 0),
    ],
)
def test_each_ending_has_its_conventional_code(probe: click.Command, arguments: list[str], code: int) -> None:
    assert run(arguments) == code


def test_a_wrong_configuration_is_reported_and_counts_as_usage(
    probe: click.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        Config(level="LOUD")

    monkeypatch.setitem(
        sys.modules, "inference_logging.cli.probe", SimpleNamespace(command=click.command("probe")(command))
    )
    assert run(["probe"]) == 2
    assert "level='LOUD' (keyword): must be one of" in capsys.readouterr().err


def test_help_lists_commands_examples_and_exit_codes_and_imports_none(
    probe: click.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for expected in ("Look at nothing.", "inference-logging probe --prints 3", "130", "ended by Ctrl-C"):
        assert expected in shown


def test_an_error_of_the_operating_system_names_the_file_without_a_traceback(
    probe: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["probe", "--raises", "missing"])
    assert capsys.readouterr().err == "inference-logging: [Errno 2] No such file: 'queues'\n"


_PRINTING = """
import sys
from types import SimpleNamespace
import click
from inference_logging import Config
from inference_logging.cli.main import COMMANDS, Entry, main

@click.command()
def command():
    for _ in range(100_000):
        click.echo("x" * 100)

COMMANDS["probe"] = Entry("", "")
sys.modules["inference_logging.cli.probe"] = SimpleNamespace(command=command)
sys.argv = ["inference-logging", "probe"]
main()
"""


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    read, write = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _PRINTING], stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.read(read, 10)
        os.close(read)
        _, reported = process.communicate()
    assert (process.returncode, reported) == (141, b"")
