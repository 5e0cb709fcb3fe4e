"""What pages show can be typed: each command line is one that the program takes, each block is of its language.

Blocks that can be run by themselves are run as well: test_readme.py, test_docs_pages.py, test_example_pages.py.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from inference_logging.cli.main import command as root

# pytest asks for tomli where Python has none.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "helm").glob("*.md")),
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|[\s;&|(])inference-logging ([a-z]+(?![a-z:])(?:'[^']*'|[^#\n|;&')>])*)")
# Files that command lines read.
FILES = ("batch.jsonl", "logging.yaml", "new.yaml", "NEW", "OLD")


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """Iterate over the pages' blocks of these languages, with the name of the page."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language in languages:
                yield str(page.relative_to(ROOT)), block


def command_lines() -> list[tuple[str, str]]:
    """Return each command line of a block, and of a sentence where it is more than a name, with its page."""
    lines = [(page, block.replace("\\\n", " ")) for page, block in blocks("sh", "shell", "console")]
    for page in PAGES:
        prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
        inline = re.findall(r"`(inference-logging [^`\s]+ [^`]+)`", " ".join(prose.split()))
        lines += [(str(page.relative_to(ROOT)), line) for line in inline if not re.search(r"\[[A-Z]|…", line)]
    found = {(page, " ".join(line.split())) for page, text in lines for line in COMMAND.findall(text)}
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


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_line_is_one_that_the_program_takes(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    try:
        parse(shlex.split(line))
    except click.exceptions.Exit:
        pass
    except click.ClickException as error:
        pytest.fail(f"{page}: {line}: {error.format_message()}")


@pytest.mark.parametrize(("page", "code"), list(blocks("python")))
def test_a_block_of_python_imports_what_is_there(page: str, code: str) -> None:
    for node in ast.walk(ast.parse(code, page)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("inference_logging"):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("inference_logging"):
                    importlib.import_module(alias.name)


@pytest.mark.parametrize(("page", "text"), list(blocks("yaml")))
def test_a_block_of_yaml_is_read(page: str, text: str) -> None:
    assert list(yaml.safe_load_all(text)), page


@pytest.mark.parametrize(("page", "text"), list(blocks("json")))
def test_a_block_of_json_is_read(page: str, text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError:  # else it has a record in each line
        assert [json.loads(line) for line in text.splitlines()], page


@pytest.mark.parametrize(("page", "text"), list(blocks("toml")))
def test_a_block_of_toml_is_read(page: str, text: str) -> None:
    assert tomllib.loads(text), page
