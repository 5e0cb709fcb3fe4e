"""What is wrong with a command line: one line on stderr, exit code 2, nothing on stdout; the same for all commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from inference_logging.cli.main import COMMANDS, EXIT_CODES, USAGE
from inference_logging.cli.main import command as root
from tests.command_line import run
from tests.segment_files import log, request, write_segment
from tests.support import Recorded

ROOT = Path(__file__).parent.parent
READING = {"tail": ["tail"], "stats": ["stats"], "query": ["query", "SELECT 1 AS one"], "verify": ["verify"]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    write_segment(made, [request(1), log(2, attributes={"n": 1})], prefix="chat")
    write_segment(made, [log(3, event_name="step", n=1)], number=2, second=3, prefix="other")
    return made


def commands() -> list[list[str]]:
    """Return the words that call each command, groups and what is in them."""
    context = click.Context(root)
    found = []
    for name in COMMANDS:
        command = root.get_command(context, name)
        found.append([name])
        if isinstance(command, click.Group):
            found += [[name, inner] for inner in command.list_commands(context)]
    return found


def refused(*arguments: str) -> str:
    """Run a command line that is wrong, and return its one line."""
    done = run(*arguments)
    assert (done.code, done.out) == (USAGE, ""), done
    assert done.err.count("\n") == 1, done.err
    return done.err


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_help_is_shown_without_a_server(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(tmp_path / "none"))
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "not one")
    done = run(*words, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: inference-logging {' '.join(words)} ")


# What bench measures has configurations of its own, and is no service; replay sends to a server of any kind.
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("bench", "config", "replay")])
def test_every_command_takes_a_configuration_file_and_a_service_name(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    options = {option: parameter.name for parameter in command.params for option in parameter.opts}
    assert options["--config"] == "config_file"
    assert options["--service-name"] == "service_name"


@pytest.mark.parametrize("command", READING)
def test_a_missing_directory_is_named(command: str, tmp_path: Path) -> None:
    assert f"{tmp_path}/none: no such directory" in refused(*READING[command], str(tmp_path / "none"))


@pytest.mark.parametrize("command", READING)
def test_an_empty_directory_is_named(command: str, tmp_path: Path) -> None:
    said = refused(*READING[command], str(tmp_path))
    assert "no segments" in said
    assert str(tmp_path) in said


@pytest.mark.parametrize("command", ["tail", "stats", "query"])
def test_a_service_without_segments_is_named(command: str, directory: Path) -> None:
    assert f"{directory}: no segments of none" in refused(*READING[command], str(directory), "--service-name", "none")


@pytest.mark.parametrize("command", ["tail", "stats", "query"])
def test_a_file_that_is_no_segment_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a\n")
    said = refused(*READING[command], str(tmp_path / "notes.txt"))
    assert f"{tmp_path}/notes.txt: neither a directory nor a segment" in said


@pytest.mark.parametrize("command", ["tail", "stats", "query"])
def test_the_configured_directory_and_service_are_found_by_file_and_name(
    command: str, directory: Path, tmp_path: Path
) -> None:
    file = tmp_path / "logging.yaml"
    file.write_text(f"version: 1\ndirectory: {directory}\n")
    arguments = {"tail": ["tail"], "stats": ["stats", "--json"], "query": ["query", "SELECT event_name FROM records"]}
    everything = run(*arguments[command], "--config", str(file))
    assert everything.code == 0
    assert "step" in everything.out
    chat = run(*arguments[command], "--config", str(file), "--service-name", "chat")
    assert chat.code == 0
    assert "request" in chat.out
    assert "step" not in chat.out


@pytest.mark.parametrize(
    "name", ["tail", "stats", "query", "verify", "view", "ship", "listen", "proxy", "recover", "ctl"]
)
def test_a_wrong_configuration_file_is_wrong_everywhere(name: str, directory: Path, tmp_path: Path) -> None:
    arguments = {**READING, "ctl": ["ctl", "show"], "proxy": ["proxy", "--listen", "a:1", "--to", "a:2"]}.get(
        name, [name]
    )
    (tmp_path / "logging.yaml").write_text("version: 1\nlevel: LOUD\n")
    given = [arguments[0], "--config", str(tmp_path / "logging.yaml"), *arguments[1:]]
    done = run(*given, *([str(directory)] if name in READING else []))
    assert (done.code, done.out) == (USAGE, "")
    assert "level='LOUD'" in done.err


def test_a_time_span_that_holds_nothing_is_refused(directory: Path) -> None:
    said = refused("stats", str(directory), "--since", "2026-11-22", "--until", "2026-11-21")
    assert "--since must be before --until" in said


@pytest.mark.parametrize(
    ("words", "near"), [(["statts"], "stats"), (["ctl", "lvel"], "level"), (["config", "chek"], "check")]
)
def test_the_nearest_command_is_named(words: list[str], near: str) -> None:
    assert f"no such command: {words[-1]!r}, the nearest is {near!r}" in refused(*words)


def test_a_name_like_no_command_stands_alone() -> None:
    assert "no such command: 'xyzzy' (see inference-logging --help)" in refused("xyzzy")


def test_without_arguments_the_help_is_shown() -> None:
    done = run()
    assert "Commands:" in done.out + done.err


def test_the_exit_codes_are_one_table_in_help_and_docs() -> None:
    shown = run("--help").out
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^ +{code} +", shown, re.MULTILINE), code
        assert f"| {code} | {meaning} |" in page


def test_a_capture_says_which_texts_it_does_not_have(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = ("ctl", "--queue-directory", str(recorded.config.resolved_queue_directory), "capture", "--route")
    lines = run(*capture, "/a").out.splitlines()
    off = "capture_input: off, capture_output: off, capture_body: off"
    assert lines[-1] == f"not captured     off in this configuration: {off}, record_headers: none"
    monkeypatch.setenv("INFERENCE_LOGGING_CAPTURE_INPUT", "full")
    monkeypatch.setenv("INFERENCE_LOGGING_CAPTURE_OUTPUT", "full")
    monkeypatch.setenv("INFERENCE_LOGGING_RECORD_HEADERS", "x-a")
    assert run(*capture, "/b").out.splitlines()[-1].endswith(" off in this configuration: capture_body: off")
    monkeypatch.setenv("INFERENCE_LOGGING_CAPTURE_BODY", "raw")
    assert "not captured" not in run(*capture, "/c").out
    assert "not captured" not in run(*capture, "wrong").out
