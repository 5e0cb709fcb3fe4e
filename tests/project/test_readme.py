"""The blocks of README and docs run as they stand, and their tables say what the code says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inference_logging import Config
from inference_logging._native import fields
from tests.kit.shown import PAGES as ALL_PAGES
from tests.kit.shown import ROOT, TARGETS

PAGES = {
    page: text for page, text in ALL_PAGES.items() if page == "README.md" or page.startswith(("docs/", "examples/"))
}
README = PAGES["README.md"]
CONFIGURATION = PAGES["docs/configuration.md"]

DRIVER = """
from fastapi.testclient import TestClient

with TestClient(app) as client:
    assert client.get("/hello?name=you").json() == {"hello": "you"}
"""


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], flags=re.DOTALL | re.MULTILINE)


def records(directory: Path) -> list[dict[str, object]]:
    lines = [line for path in directory.glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"INFERENCE_LOGGING_QUEUE_DIRECTORY": str(cwd / "queues"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-W", "error::DeprecationWarning:inference_logging", "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("page", ["README.md", "docs/fastapi.md"])
def test_the_first_block_serves_and_records_a_request_and_a_greeting(page: str, tmp_path: Path) -> None:
    done = run(blocks("python", page)[0] + DRIVER, tmp_path)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "logs")
    request = next(record for record in found if record["event_name"] == "request")
    greeting = next(record for record in found if record["event_name"] == "log")
    assert (request["http.route"], request["outcome"]) == ("/hello", "ok")
    assert greeting["attributes"] == {"name": "you"}
    assert greeting["trace_id"] == request["trace_id"]


def test_the_standard_library_block_records_its_message_and_extra(tmp_path: Path) -> None:
    done = run(blocks("python", "docs/application-records.md")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = next(record for record in records(tmp_path / "logs") if record["event_name"] == "log")
    assert (loaded["logger"], loaded["message"]) == ("model", "loaded")
    attributes = loaded["attributes"]
    assert isinstance(attributes, dict)
    assert attributes["parameters"] == 7_000_000_000
    assert set(attributes) == {"parameters", "code.file.path", "code.line.number", "code.function.name"}


def test_the_hot_loop_block_writes_every_step(tmp_path: Path) -> None:
    done = run(blocks("python", "docs/application-records.md")[-1], tmp_path)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr
    steps = [record for record in records(tmp_path / "engine-logs") if record["event_name"] == "engine.step"]
    assert [step["seq"] for step in steps] == list(range(1000))


def test_the_yaml_block_is_a_valid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(blocks("yaml", "docs/configuration.md")[0], encoding="utf-8")
    config = Config(config_file=path)
    assert (config.service_name, config.queue_bytes, config.chunks) == ("chat", 32 << 20, "summary")
    assert config.in_flight_slots == 4096


@pytest.mark.parametrize("page", ["README.md", "docs/records.md"])
def test_the_json_block_has_the_fields_of_a_request_in_their_order(page: str) -> None:
    example = list(json.loads(blocks("json", page)[0]))
    order = [name for name, source, *_ in fields() if source == "server"]
    # Usage stands twice in the list: here it is the response's, which stands where the response's body would.
    known = [name for name in example if name in order and "usage" not in name]
    assert known == [name for name in order if name in known]
    assert len(known) >= 15


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which the first block has served, with the file that the commands name."""
    place = tmp_path_factory.mktemp("served")
    done = run(blocks("python", "docs/fastapi.md")[0] + DRIVER, place)
    assert done.returncode == 0, done.stderr
    (place / "logging.yaml").write_text(blocks("yaml", "docs/configuration.md")[0], encoding="utf-8")
    shutil.copytree(place / "queues", place / "saved-queues")
    return place


TRIED = (
    "README.md",
    "docs/access-logs.md",
    "docs/clickhouse.md",
    "docs/export.md",
    "docs/loss.md",
    "docs/opensearch.md",
    "docs/operating.md",
    "docs/performance.md",
    "docs/reading.md",
    "docs/replay.md",
    "docs/shipping.md",
    "docs/sizing.md",
)
"""Pages whose commands need nothing but what a server has written."""
# What needs a server that serves meanwhile, or a destination, has tests of its own with one.
_NEEDS_MORE = r"ab |replay |size [^\n]*\+https:|ship (?![^\n]*--print-schema)"
COMMAND = rf"^(inference-logging (?!{_NEEDS_MORE})[^#>\n]*[^#>\s])"
COMMANDS = sorted(
    {command for page in TRIED for command in re.findall(COMMAND, "".join(blocks("sh", page)), flags=re.MULTILINE)}
)


@pytest.mark.servers
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_that_is_shown_works(command: str, served: Path) -> None:
    command = command.replace("/tmp/", f"{served}/")
    ends = "--follow" not in command
    arguments = shlex.split(command if ends else command.replace("outcome=error", "outcome=ok"))[1:]
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(served / "queues")}
    program = [sys.executable, "-m", "inference_logging.cli.main", *arguments]
    with subprocess.Popen(program, cwd=served, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        if not ends:
            assert run.stdout.readline()
            run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=120)
    # The server that is shown has no model: a format of tokens or texts holds none of its requests, and says so.
    holds_none = b"nothing exported: " in errors and b"cannot hold them" in errors
    assert run.returncode == (1 if holds_none else 0 if ends else 130), errors


def test_what_to_set_first_is_a_parameter_and_none_for_experts() -> None:
    shown = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| .*\? \| (.*) \|$", CONFIGURATION, flags=re.MULTILINE)))
    visible = {parameter.name for parameter in Config.describe() if not parameter.advanced}
    assert len(shown) > 10
    assert set(shown) <= visible


def test_it_says_how_many_parameters_each_table_has() -> None:
    advanced = [parameter.advanced for parameter in Config.describe()]
    visible = len(advanced) - sum(advanced)
    sentence = f"{len(advanced)} parameters: {visible} for everyone, and {sum(advanced)} for experts"
    assert sentence in " ".join(CONFIGURATION.split())


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_make_target_it_names_exists(page: str) -> None:
    assert set(re.findall(r"`make ([a-z0-9-]+)", ALL_PAGES[page])) <= TARGETS


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_link_and_picture_of_the_checkout_is_there(page: str) -> None:
    place = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", ALL_PAGES[page]):
        if "://" in target or target.startswith("#"):
            continue
        file, _, anchor = target.partition("#")
        found = (place / file).resolve()
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target


RETIRED = re.compile(
    r"(?<![a-z])(told|tells?|telling|untold|tally|tallies|whoever|mend(?:s|ed|ing)?)(?![a-z])", re.IGNORECASE
)
"""Words that the glossary has replaced, in names too: report, count, anyone who, repair."""


@pytest.mark.parametrize("page", ALL_PAGES)
def test_words_that_were_retired_do_not_come_back(page: str) -> None:
    assert [line for line in ALL_PAGES[page].splitlines() if RETIRED.search(line)] == []


def anchors(text: str) -> set[str]:
    """Return the names that links can have for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Examples have a test of their own; what results.py writes is as long as a result is.
@pytest.mark.parametrize("page", [page for page in PAGES if "/" not in page.removeprefix("docs/")])
def test_a_sentence_has_thirty_words_at_most(page: str) -> None:
    written = PAGES[page].partition("<!-- end: results")[2] if page == "docs/figures.md" else PAGES[page]
    prose = re.sub(r"```.*?```|^[|<!].*?$", "", written, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`]+`(,\s+`[^`]+`)+", "names", prose)  # a list of names is no sentence
    if page == "README.md":  # its list of links is no prose
        prose = re.sub(r"^\* .*?(?=^\* |^#|\Z)", "", prose, flags=re.DOTALL | re.MULTILINE)
    sentences = re.split(r"(?<=[.:;?!])\s+|\n\n", prose)
    assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= 200


def test_the_first_commands_of_the_readme_set_up_everything_and_the_next_install_from_a_checkout() -> None:
    first, install = blocks("sh", "README.md")[:2]
    assert re.findall(r"^make \w+", first, flags=re.MULTILINE) == ["make demo", "make test"]
    # There is no release: what is installed comes out of the line before.
    assert install.splitlines()[0] == "make wheel"
    (wheel,) = re.findall(r'^pip install "\$\(ls (dist/[^)]*)\)\[', install, flags=re.MULTILINE)
    assert Path("dist/inferlog-0.1.0-cp310-abi3-linux_x86_64.whl").match(wheel)


def test_an_image_that_the_readme_deploys_is_built_in_the_line_before() -> None:
    (block,) = (block for block in blocks("sh", "README.md") if "helm install" in block)
    built = re.findall(r"docker build .*--tag (\S+):", block)
    assert set(re.findall(r"listener\.image\.repository=(\S+)", block)) == set(built)
