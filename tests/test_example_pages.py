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

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
NUMBER = r"\d[\d.,:TZ-]*"


def blocks(name: str, language: str) -> list[str]:
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def pattern(line: str) -> re.Pattern[str]:
    """Return what a line that is shown stands for: any numbers in the place of its own, anything where it has `…`."""
    parts = [NUMBER.join(map(re.escape, re.split(NUMBER, part))) for part in line.strip().split("…")]
    return re.compile(r"\s+".join(".*".join(parts).replace(r"\ ", " ").split()))


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
    script = "set -eu\n" + "".join(blocks(name, "sh")).replace("8000", str(free_port()))
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


def assert_prints(name: str, output: str) -> None:
    """Find each line that the README shows in what was printed, in its order."""
    printed = iter(output.splitlines())
    for line in "".join(blocks(name, "text")).splitlines():
        shown = pattern(line)
        assert any(shown.search(other) for other in printed), f"{line}\nis not in\n{output}"


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_says_in_forty_lines_what_it_shows_and_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
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
    assert_prints(name, run(name, tmp_path))


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (on Debian: apt-get install curl)")
def test_the_server_prints_what_its_readme_shows(tmp_path: Path) -> None:
    assert_prints("fastapi", run("fastapi", tmp_path))


@pytest.mark.servers
@pytest.mark.skipif(
    shutil.which("pkg-config") is None, reason="needs pkg-config (on Debian: apt-get install pkg-config)"
)
def test_the_sensor_prints_what_its_readme_shows(installed: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "dist" / "c"
    prefix.parent.mkdir()
    prefix.symlink_to(installed)
    (tmp_path / "examples").mkdir()
    assert_prints("c_sensor", run("c_sensor", tmp_path / "examples"))
