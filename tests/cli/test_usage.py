"""Command lines: every example of a help runs, what is wrong has one line, and files are their owner's alone."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click
import pytest

from inference_logging.cli.main import COMMANDS, EXIT_CODES, USAGE
from inference_logging.cli.main import command as root
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment
from tests.kit.support import Recorded

ROOT = Path(__file__).parents[2]
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


WRITING = {
    "export -o": ["export", "--format", "perfetto", "-o"],
    "export --statement": ["export", "--format", "perfetto", "-o", "-", "--statement"],
    "stats --html": ["stats", "--html"],
    "replay --html": ["replay", __file__, "--url", "http://127.0.0.1:9", "--html"],
    "replay --json": ["replay", __file__, "--url", "http://127.0.0.1:9", "--json"],
    "replay --requests": ["replay", __file__, "--url", "http://127.0.0.1:9", "--requests"],
}
"""Each option that names a file to write."""


@pytest.mark.parametrize("option", WRITING)
def test_a_file_in_a_folder_that_does_not_exist_is_refused_before_anything_is_read(option: str, tmp_path: Path) -> None:
    said = refused(*WRITING[option], str(tmp_path / "none" / "file"))
    assert f"the folder '{tmp_path}/none' does not exist" in said
    (tmp_path / "none").touch()
    assert f"'{tmp_path}/none' is not a folder" in refused(*WRITING[option], str(tmp_path / "none" / "file"))


def test_a_missing_option_is_named_on_one_line() -> None:
    assert refused("export", "--format", "perfetto").startswith("Error: Missing option '-o' / '--output'")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_uses_only_options_that_its_command_has(name: str) -> None:
    command: click.Command | None = root.get_command(click.Context(root), name)
    assert command is not None
    for example in (COMMANDS[name].example, *examples_of(command)):
        words = shlex.split(example)[2:]
        called = [command]
        if isinstance(command, click.Group):
            called += [inner for word in words if (inner := command.get_command(click.Context(command), word))]
            assert len(called) == 2, example
        parameters = [parameter for each in called for parameter in each.params]
        has = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
        ours = itertools.takewhile(lambda word: word not in ("--", "|"), words)
        assert {word.partition("=")[0] for word in ours if re.match("--?[a-z]", word)} <= has, example


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


NAMING_A_FOLDER = {
    "verify": ["verify"], "index": ["index"], "view": ["view", "--no-browser"],
    "ship": ["ship", "--once", "--to", "syslog+tcp://127.0.0.1:9", "--directory"],
}  # fmt: skip


@pytest.mark.parametrize("command", NAMING_A_FOLDER)
def test_a_file_in_place_of_a_folder_is_no_missing_folder(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert "notes.txt: not a directory" in refused(*NAMING_A_FOLDER[command], str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("files", [1, 2])
def test_a_folder_in_place_of_a_configuration_file_is_no_missing_file(files: int, tmp_path: Path) -> None:
    assert f"{tmp_path}: not a file" in refused("config", ["check", "diff"][files - 1], *files * [str(tmp_path)])


@pytest.mark.parametrize("command", [["tail"], ["export", "--format", "perfetto", "-o", "-"]], ids=lambda it: it[0])
def test_a_trace_that_is_no_hexadecimal_number_is_refused(command: list[str], directory: Path) -> None:
    assert "'zz': must be a trace id's first hexadecimal digits" in refused(*command, str(directory), "--trace", "zz")


def test_recover_without_a_queue_directory_says_which_one_it_looked_for(tmp_path: Path) -> None:
    assert f"queue_directory={tmp_path}/none: does not exist" in refused("recover", str(tmp_path / "none"))


def test_a_cache_directory_that_cannot_be_made_is_named_once(directory: Path) -> None:
    done = run("index", str(directory), "--cache-directory", "/proc/none")
    assert "problem: /proc/none: No such file or directory; rows are kept in memory" in done.out


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


STEERING = (*("ab", "bench", "ctl", "export", "listen", "proxy", "recover", "replay", "run", "ship", "verify", "view"),)
"""Commands that need a server, a destination, what a server really wrote, or minutes; their own tests run examples."""


def all_commands() -> Iterator[tuple[str, click.Command]]:
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


EXAMPLES = [example for _, command in all_commands() for example in examples_of(command)]
EXAMPLES += [COMMANDS[name].example for name in COMMANDS if name not in STEERING]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def environment(served: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{served / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.servers
@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--follow" not in example])
def test_the_example_runs(example: str, served: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", example], cwd=served, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    is_past = "stats" in example and "--since 2h" in example  # the records are of a day in 2026
    nothing = "inference-logging stats: nothing: no request arrived in that time\n" if is_past else ""
    assert (done.returncode, done.stderr) == (0, nothing)
    assert done.stdout or "> " in example


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--follow" in example])
def test_the_example_that_follows_shows_new_records_until_it_is_interrupted(
    example: str, served: Path, environment: dict[str, str]
) -> None:
    seen = threading.Event()

    def write() -> None:
        # Again and again, since what stands there before the command looks is not new to it.
        for number in count(100):
            record = log(number, "news", attributes={"stream": True})
            write_segment(served / "logs", [record], number=number, second=number)
            if seen.wait(0.2):
                return

    writer = threading.Thread(target=write)
    with subprocess.Popen(
        ["bash", "-c", f"exec {example}"], cwd=served, env=environment, stdout=subprocess.PIPE, text=True
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
    for name, command in all_commands():
        if isinstance(command, click.Group):
            continue
        shown = command.get_help(click.Context(command, info_name=name, terminal_width=78, max_content_width=78))
        assert examples_of(command), name
        for example in examples_of(command):
            assert f"  {example}\n" in f"{shown}\n", example


def test_the_examples_of_a_command_call_it() -> None:
    for name, command in all_commands():
        for example in examples_of(command):
            assert re.search(rf"inference-logging {name}\b", example), example


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_a_page_of_stats_is_its_owners_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(0)])
    done = run("stats", str(tmp_path), "--html", str(tmp_path / "page.html"))
    assert done.code == 0, done.err
    assert mode(tmp_path / "page.html") == 0o600


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("form", ["openai-jsonl", "parquet"])
def test_an_export_and_its_statement_are_their_owners_alone_also_where_another_stood(tmp_path: Path, form: str) -> None:
    write_segment(tmp_path, [request(0)])
    made, other = tmp_path / "made", tmp_path / "other"
    made.write_text("an earlier one, for all")
    other.write_text("")
    made.with_name("made.partial").symlink_to(other)
    done = run(
        "export", str(tmp_path), "--format", form, "-o", str(made), "--statement", str(tmp_path / "statement.json")
    )
    assert done.code == (1 if "nothing exported" in done.err else 0), done.err
    assert (mode(made), mode(tmp_path / "statement.json")) == (0o600, 0o600)
    assert other.read_text() == ""
