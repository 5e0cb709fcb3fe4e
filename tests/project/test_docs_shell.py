"""Every command that a page shows in a block of a shell is one that somebody can type: each program has its check.

Blocks that can be run by themselves are run as well: test_readme.py, test_docs_pages.py.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import uvicorn

from inference_logging import Config
from inference_logging.cli.main import command as root
from tests.chart.test_pages import PAGES as RENDERED
from tests.kit.shown import PAGES, ROOT, TARGETS, blocks_of

SHELLS = ("sh", "shell", "console")
# Files that command lines read.
FILES = ("batch.jsonl", "logging.yaml", "log.json", "new.yaml", "old.yaml", "NEW", "OLD")
OTHERS = (
    *("aiperf", "cargo", "cc", "curl", "docker", "export", "jq", "journalctl", "kubectl", "parsl-perf", "pkg-config"),
    *("ssh", "tritonserver", "vllm"),
)
"""Programs of others, whose options no test here reads."""
POSIX = (".", "grep", "kill", "ls", "sleep", "tail", "true", "wait")
NAMES = {parameter.name for parameter in Config.describe()}
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
ENDS = frozenset(("&", "&&", "|", "||", ";", "(", ")"))
# Reads the arguments as the script does, and runs nothing.
READ_ONLY = """
import argparse, runpy, sys
real = argparse.ArgumentParser.parse_args
def parse_args(self, *given, **named):
    real(self, *given, **named)
    raise SystemExit(0)
argparse.ArgumentParser.parse_args = parse_args
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
raise SystemExit("it reads no arguments")
"""


def typed(language: str, block: str) -> str:
    """Return what a block asks to type: of a console only what stands behind its prompt."""
    joined = block.replace("\\\n", " ")
    if language != "console":
        return joined
    return "".join(f"{line[2:]}\n" for line in joined.splitlines() if line.startswith("$ "))


def simple_commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command of a script, without redirections, comments and operators."""
    for inner in re.findall(r"\$\(([^()]*)\)", script):
        yield from simple_commands(inner)
    for line in re.sub(r"\$\([^()]*\)", "WORD", script).splitlines():
        reader = shlex.shlex(line, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        words: list[str] = []
        skips = False
        for word in reader:
            if word in ENDS:
                if words:
                    yield words
                words = []
            elif set(word) <= {"<", ">", "&"}:
                skips = True
            elif skips:
                skips = False
            else:
                words.append(word)
        if words:
            yield words


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Return each command of the pages' blocks, with its page."""
    found = {
        (page, tuple(words))
        for page, language, block in blocks_of(*SHELLS)
        for words in simple_commands(typed(language, block))
    }
    return sorted(found)


def lines_in_sentences() -> list[tuple[str, str]]:
    """Return each command line of ours and of uvicorn in a sentence that is more than a name, with its page."""
    found = set()
    for page, text in PAGES.items():
        if page == "CHANGELOG.md":  # it names what a command got
            continue
        prose = " ".join(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).split())
        lines = re.findall(r"`(inference-logging [a-z][^`\s]* [^`]+|uvicorn [^`]+)`", prose)
        found |= {(page, line) for line in lines if not re.search(r"\[[A-Z]|…", line)}
    return sorted(found)


def parse(arguments: list[str]) -> None:
    """Read a command line as the program does, and run nothing. Raises ``click.UsageError``."""
    context: click.Context | None = None
    command: click.Command = root
    name = "inference-logging"
    while True:
        context = command.make_context(name, arguments, parent=context)
        left = [*vars(context).get("_protected_args", ()), *context.args]
        if not isinstance(command, click.Group) or not left:
            return
        _, found, arguments = command.resolve_command(context, left)
        assert found is not None
        name, command = str(found.name), found


def ours(words: list[str], page: str) -> None:
    with contextlib.suppress(click.exceptions.Exit):
        parse(words)
    _, _, served = " ".join(words).partition(" -- uvicorn ")
    if words[0] == "run" and served:
        uvicorn_(served.split(), page)


def uvicorn_(words: list[str], _page: str) -> None:
    uvicorn.main.make_context("uvicorn", words if words[0] == "app:app" else ["app:app", *words])


def make(words: list[str], _page: str) -> None:
    assert {word for word in words if not ASSIGNMENT.fullmatch(word)} <= TARGETS


def pip(words: list[str], _page: str) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", table, re.MULTILINE))
    assert words[0] == "install"
    for wanted in re.findall(r"^(?:inferlog|\.)\[(.*)\]$", "\n".join(words), re.MULTILINE):
        assert set(wanted.split(",")) <= extras, wanted


def python(words: list[str], page: str) -> None:
    if words[:2] == ["-m", "venv"]:
        return
    if words[0] in ("-c", "-m"):
        compile(words[1], page, "exec")
        return
    script = next(place / words[0] for place in ((ROOT / page).parent, ROOT) if (place / words[0]).exists())
    source = script.read_text(encoding="utf-8")
    compile(source, script, "exec")
    if words[1:]:
        assert "ArgumentParser(" in source
        command = [sys.executable, "-c", READ_ONLY, str(script), *words[1:]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parent)])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


def locust(words: list[str], page: str) -> None:
    if "locustfile.py" in words:  # test_docs_pages.py runs this one
        assert page == "docs/load-tests.md"
        return
    command = [sys.executable, "-m", "locust", *words, "--list"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def helm(words: list[str], page: str) -> None:
    assert (words[0], page in RENDERED) == ("install", True), "no test renders it"


def other(program: str, words: list[str], page: str) -> None:
    """Check of a program of others what is ours in its arguments: variables, stages of images, names to import."""
    stages = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    for option, value in itertools.pairwise(words):
        if option == "--target":
            assert value in stages
        if option == "--middleware":
            module, _, name = value.rpartition(".")
            assert hasattr(importlib.import_module(module), name)
    for place, word in enumerate(words):
        if program in ("docker", "export") and (found := ASSIGNMENT.fullmatch(word)):
            is_a_parameter(found[1])
        if word.endswith(".py"):
            assert (ROOT / page).parent.joinpath(word).exists()
        if word == "inference-logging":
            ours(words[place + 1 :], page)


CHECKS: dict[str, Callable[[list[str], str], None]] = {
    "inference-logging": ours,
    "uvicorn": uvicorn_,
    "make": make,
    "pip": pip,
    "python": python,
    "python3": python,
    "locust": locust,
    "helm": helm,
}


def is_a_parameter(variable: str) -> None:
    name = variable.removeprefix("INFERENCE_LOGGING_")
    assert name == variable or name.lower() in NAMES, f"no parameter has the variable {variable}"


@pytest.mark.parametrize(
    ("page", "words"), commands(), ids=lambda one: one if isinstance(one, str) else shlex.join(one)
)
def test_a_command_of_a_block_is_one_that_its_program_takes(
    page: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    left = list(words)
    while left and (found := ASSIGNMENT.fullmatch(left[0])):
        is_a_parameter(found[1])
        if found[1].startswith("INFERENCE_LOGGING_"):
            monkeypatch.setenv(found[1], found[2])
        left = left[1:]
    Config()
    if not left:
        return
    program, *arguments = left
    program = program.removeprefix("venv/bin/")
    if program in CHECKS:
        try:
            CHECKS[program](arguments, page)
        except click.ClickException as error:
            pytest.fail(f"{page}: {shlex.join(words)}: {error.format_message()}")
    elif program in OTHERS:
        other(program, arguments, page)
    else:
        assert program in POSIX or (ROOT / page).parent.joinpath(f"{program}.c").exists(), f"no test reads {program}"


@pytest.mark.parametrize(("page", "line"), lines_in_sentences())
def test_a_command_line_in_a_sentence_is_one_that_the_program_takes(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    program, *words = shlex.split(line)
    try:
        CHECKS[program](words, page)
    except click.ClickException as error:
        pytest.fail(f"{page}: {line}: {error.format_message()}")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("page", "language", "block"), list(blocks_of(*SHELLS)))
def test_a_block_of_a_shell_is_read_by_it(page: str, language: str, block: str) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=typed(language, block), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), page
