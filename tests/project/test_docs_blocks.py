"""Every block of a page is read as its language has it, and every command of a shell's is one that can be typed."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import uvicorn
import yaml

from inference_logging import Config
from inference_logging.cli.main import command as root
from inference_logging.read.export.statement import Books, Requests, Statement
from inference_logging.read.segments.columns import HEAD, REQUESTS
from inference_logging.record.config.schema import file_schema
from inference_logging.record.integrations.vllm.records import REQUEST_FIELDS
from inference_logging.segments import Segment
from inference_logging.ship.s3.place import JSON_LINES, hive, manifest_key, object_key
from tests.chart.chart import CHART, LEAST, merged
from tests.chart.test_chart import PAGES as RENDERED
from tests.kit.identity import answer, served
from tests.kit.shown import PAGES, ROOT, TARGETS, blocks_of

# pytest asks for tomli where Python has none.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ANNOTATION = re.compile(r"inference-logging\.io/\w+")
OPTION = re.compile(r"^[ -]*([\w.]+): ", re.MULTILINE)
FIELDS = {*HEAD, *REQUESTS, *REQUEST_FIELDS}
"""Names that a request's record can have."""
PART = re.compile(r'"([\w.]+)": ')


@pytest.mark.servers
@pytest.mark.parametrize(("page", "_language", "code"), list(blocks_of("python")))
def test_a_block_of_python_imports_what_is_there_and_runs(page: str, _language: str, code: str, tmp_path: Path) -> None:
    for node in ast.walk(ast.parse(code, page)):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if importlib.util.find_spec(str(module).partition(".")[0]) is None and module != "app":
                pytest.skip(f"{module} is not installed")
    blocks = [other for place, _, other in blocks_of("python") if place == page]
    (tmp_path / "app.py").write_text(blocks[0], encoding="utf-8")  # what later blocks import
    (tmp_path / "shown.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    command = [sys.executable, "-W", "error::DeprecationWarning:inference_logging", "shown.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_block_that_sets_fields_sets_them(keyed: Any) -> None:
    (code,) = (block for page, _, block in blocks_of("python") if page == "docs/identity.md")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        exec(code, {})
        await answer(scope, receive, send)

    record = served(keyed(), {}, app=app)
    assert (record["tenant.id"], record["enduser.id"]) == ("acme", "u-7")
    assert record["attributes"] == {"queue": "fast", "retries": 2}


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("yaml")))
def test_a_block_of_yaml_is_read_by_what_it_is_for(page: str, _language: str, text: str, tmp_path: Path) -> None:
    if "{{" in text:
        assert page == "helm/library/README.md", "tests/chart/library.py renders no other"
        return
    (read,) = yaml.safe_load_all(text)
    if isinstance(read, list):
        assert page == "docs/configuration-changes.md", "test_bench_configurations.py runs no other"
    elif "version" in read:
        is_a_configuration(text, tmp_path)
    elif "metadata" in read:
        known = set(ANNOTATION.findall((CHART / "templates" / "injection.yaml").read_text(encoding="utf-8")))
        assert set(read["metadata"]["annotations"]) <= known
    elif "components" in read:
        component = CHART / read["components"][0].removeprefix("inference-logging/helm/")
        made = yaml.safe_load((component / "kustomization.yaml").read_text(encoding="utf-8"))
        assert made["kind"] == "Component"
        assert read["images"][0]["name"] in "".join(path.read_text("utf-8") for path in component.glob("*.yaml"))
    elif "dependencies" in read:
        (chart,) = read["dependencies"]
        own = yaml.safe_load((CHART / "library" / "Chart.yaml").read_text(encoding="utf-8"))
        assert (chart["name"], chart["version"]) == (own["name"], own["version"])
    elif "pipeline" in read:
        known = set(OPTION.findall((CHART / "templates" / "_fluent-bit.tpl").read_text(encoding="utf-8")))
        for part in (read["service"], *read["pipeline"]["inputs"], *read["pipeline"]["outputs"]):
            assert set(part) <= known, "what tests run with Fluent Bit"
    elif "inferenceLogging" in read:
        are_values(read["inferenceLogging"], CHART / "library")
    else:
        are_values(merged(LEAST, read), CHART)


def are_values(values: dict[str, Any], chart: Path) -> None:
    """Check values of a chart by its schema, over its defaults."""
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(merged(defaults, values), schema)


def is_a_configuration(text: str, place: Path) -> None:
    """Check a file of parameters as a server does, and by its schema as an editor does."""
    (place / "logging.yaml").write_text(text, encoding="utf-8")
    Config(config_file=place / "logging.yaml")
    jsonschema.validate(yaml.safe_load(text), file_schema())


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("json")))
def test_a_block_of_json_is_read_by_what_it_is_for(page: str, _language: str, text: str, tmp_path: Path) -> None:
    try:
        read = [json.loads(text)]
    except json.JSONDecodeError:  # else it has a record in each line
        read = [json.loads(line) for line in text.splitlines()]
    assert read
    for one in read:
        if one.get("event_name") == "request":
            assert set(one) <= FIELDS, page
        if "queue_directory" in one:
            is_a_configuration(text, tmp_path)


@pytest.mark.parametrize("page", ["docs/triton.md", "docs/vllm.md"])
def test_a_part_of_a_record_has_fields_of_it(page: str) -> None:
    text = shown(page)
    of_tensors = {"name", "datatype", "shape", "bytes"}
    assert set(PART.findall(text)) - of_tensors <= FIELDS
    assert len(PART.findall(text)) > 5


def shown(page: str) -> str:
    """Return the block of text of a page that has one."""
    (text,) = (block for place, _, block in blocks_of("text") if place == page)
    return text


def test_the_statement_of_an_export_has_these_words() -> None:
    requests = Requests(
        60, 55, left_out={"no_body": 5}, by_outcome={"ok": 50, "client_disconnect": 5}, stands_for=110.0
    )
    books = Books({"totals": {"accepted": 70, "written": 70}, "processes": [{"sampled_out": {"head": 58}}]})
    statement = Statement("openai-jsonl", "logs", {}, requests, books, ())
    assert shown("docs/export.md").splitlines() == statement.words()


def test_keys_of_objects_have_this_form() -> None:
    segment, manifest = (line.removeprefix("logs/") for line in shown("docs/object-storage.md").splitlines())
    assert manifest == manifest_key(segment)
    name = segment.rpartition("/")[2].replace("…", "e258c1d2b9ed4f09-000001")
    assert (parsed := Segment.parse(name.removesuffix(".zst"))) is not None, name
    of = hive(segment)
    assert object_key(parsed, of["service"], of["pod"], JSON_LINES) == segment.rpartition("/")[0] + f"/{name}"


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("toml")))
def test_a_block_of_toml_names_a_crate_and_its_features(page: str, _language: str, text: str) -> None:
    for name, wanted in tomllib.loads(text)["dependencies"].items():
        crate = ROOT / wanted["path"].removeprefix("../inference_logging/")
        found = tomllib.loads((crate / "Cargo.toml").read_text(encoding="utf-8"))
        assert found["package"]["name"] == name, page
        assert set(wanted["features"]) <= set(found["features"])


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
