"""The README of each example: its commands run as they stand, and print what stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.shown import assert_prints, blocks

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def readme(name: str) -> str:
    return (EXAMPLES / name / "README.md").read_text(encoding="utf-8")


def run(name: str, place: Path, **environment: str) -> str:
    """Follow a README in a copy of its folder; return what is printed."""
    folder = shutil.copytree(EXAMPLES / name, place / name)
    scripts = place / "bin"
    scripts.mkdir()
    for command, module in (
        ("python", ""),
        ("inference-logging", "-m inference_logging.cli.main"),
        ("uvicorn", "-m uvicorn"),
    ):
        (scripts / command).write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {module} "$@"\n')
        (scripts / command).chmod(0o755)
    script = "set -eu\n" + "".join(blocks(readme(name), "sh")).replace("8000", str(free_port()))
    own = {"PATH": f"{scripts}:{os.environ['PATH']}", "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(place / "queues")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **own, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_shown(name: str, output: str) -> None:
    assert_prints("".join(blocks(readme(name), "text")).splitlines(), output)


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_says_in_forty_lines_what_it_shows_and_how_to_run_it(name: str) -> None:
    text = readme(name)
    assert len(text.splitlines()) <= 40
    assert re.search(r"^```sh(ell)?\n", text, flags=re.MULTILINE)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    sentences = re.split(r"(?<=[.:;?!])\s+|\n\n", prose)
    assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_the_index_names_each_example() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\)", index, flags=re.MULTILINE)) == FOLDERS


@pytest.mark.servers
@pytest.mark.parametrize("name", ["application_records", "audit_records", "bare_logger"])
def test_an_example_prints_what_its_readme_shows(name: str, tmp_path: Path) -> None:
    assert_shown(name, run(name, tmp_path))


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (on Debian: apt-get install curl)")
def test_the_server_prints_what_its_readme_shows(tmp_path: Path) -> None:
    assert_shown("fastapi", run("fastapi", tmp_path))


@pytest.mark.servers
@pytest.mark.skipif(
    shutil.which("pkg-config") is None, reason="needs pkg-config (on Debian: apt-get install pkg-config)"
)
def test_the_sensor_prints_what_its_readme_shows(installed: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "dist" / "c"
    prefix.parent.mkdir()
    prefix.symlink_to(installed)
    (tmp_path / "examples").mkdir()
    assert_shown("c_sensor", run("c_sensor", tmp_path / "examples"))
