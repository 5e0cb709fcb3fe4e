"""The images: linted, and held against chart and package. tests/project/test_images.py builds and starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.chart.chart import CHART, parted, render

ROOT = CHART.parent
DOCKERFILE = ROOT / "Dockerfile"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


class Instruction(NamedTuple):
    """One instruction, its lines joined and arguments put in."""

    name: str
    text: str


def instructions() -> list[Instruction]:
    """Return the instructions in order."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]
    found = [Instruction(*line.split(maxsplit=1)) for line in joined]
    given = dict(one.text.split("=", 1) for one in found if one.name == "ARG" and "=" in one.text)
    return [Instruction(one.name, re.sub(r"\$\{(\w+)\}", lambda m: given.get(m[1], m[0]), one.text)) for one in found]


def stages() -> dict[str, list[Instruction]]:
    """Return the instructions of each stage, by its name or place."""
    found: dict[str, list[Instruction]] = {}
    for one in instructions():
        if one.name == "FROM":
            found[re.split(r"\s+AS\s+", one.text)[-1]] = [one]
        elif found:
            found[list(found)[-1]].append(one)
    return found


def last() -> dict[str, str]:
    """Return the texts of the last stage's instructions by name."""
    return texts(list(stages())[-1])


def texts(stage: str) -> dict[str, str]:
    """Return the texts of a stage's instructions by name."""
    return {one.name: " ".join(one.text.split()) for one in stages()[stage]}


def test_the_linter_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_base_is_pinned_to_a_version() -> None:
    bases = [one.text.split()[0] for one in instructions() if one.name == "FROM"]
    foreign = [base for base in bases if base != "scratch" and base not in stages()]
    assert foreign
    pinned = re.compile(r"[a-z/]+:\d+\.\d+\.\d+-[a-z-]+@sha256:[0-9a-f]{64}")
    assert [base for base in foreign if not pinned.fullmatch(base)] == []


def test_what_is_copied_from_a_stage_comes_from_one_that_stands_before() -> None:
    before: list[str] = []
    for stage, found in stages().items():
        sources = [match[1] for one in found if (match := re.match(r"--from=(\S+)", one.text))]
        assert set(sources) <= set(before), stage
        before.append(stage)
    assert {"wheel", "install"} <= set(before)


def test_the_images_run_as_the_user_that_the_chart_gives_its_pods() -> None:
    assert texts("listener")["USER"] == last()["USER"]
    user, group = (int(number) for number in last()["USER"].split(":"))
    assert user != 0
    given = VALUES["podSecurityContext"]
    assert (user, group) == (given["runAsUser"], given["runAsGroup"])


def test_the_image_is_the_listener_that_the_chart_starts() -> None:
    assert last()["ENTRYPOINT"] == '["inference-logging"]'
    assert last()["CMD"] == f'["listen", "--metrics-port", "{VALUES["listener"]["port"]}"]'
    assert "\ninference-logging = " in PROJECT


def test_a_server_of_others_gets_the_package_by_three_lines_from_the_same_wheels() -> None:
    (block,) = re.findall(r"```dockerfile\n(.*?)```", (CHART / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    _, copies, installs = block.splitlines()
    assert copies == "COPY " + next(one.text for one in stages()["wheel"] if one.name == "COPY")
    assert installs == "RUN pip install --find-links /wheels inferlog"


@pytest.mark.chart
def test_the_image_without_python_has_the_program_that_the_chart_starts_and_nothing_else() -> None:
    stage = texts("listener")
    assert stage["FROM"] == "scratch AS listener"
    source, place = stage["COPY"].removeprefix("--from=wheel ").split()
    program = place + Path(source).name
    assert stage["ENTRYPOINT"] == f'["{program}"]'
    assert stage["CMD"] == last()["CMD"]
    assert parted(render().containers["listener"])[1][:2] == [program, "listen"]


def test_packages_are_those_of_a_lock_with_hashes_and_nothing_is_compiled() -> None:
    installs = [part for text in run_lines() for part in text.split("&&") if " install " in part]
    assert len(installs) == 2
    for install in installs:
        assert "--no-deps --no-index --find-links /wheels" in install or "--require-hashes" in install, install
    assert [one.text for one in instructions() if re.search(r"\b(rust|cargo|maturin|gcc)\b", one.text)] == []


def run_lines() -> list[str]:
    """Return what each RUN runs, spaces made single."""
    return [" ".join(one.text.split()) for one in instructions() if one.name == "RUN"]


def asked_for(name: str) -> list[str]:
    """Return the requirements of a list of pyproject.toml."""
    found = re.search(rf"^{name} = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return re.findall(r'^ +"([^"]+)"', found[1], re.MULTILINE)


def test_the_lock_of_the_image_has_what_the_extras_ask_for() -> None:
    copied = next(one.text.split()[0] for one in instructions() if one.name == "COPY" and ".txt" in one.text)
    lock = (ROOT / copied).read_text(encoding="utf-8")
    requirements = re.findall(r"^([\w.-]+)==(\S+?)(?: ; (.+?))? \\$", lock, re.MULTILINE)
    python = re.match(r"python:(\d+\.\d+)", stages()["wheel"][0].text)
    assert python is not None
    variables = {"python_version": python[1], "python_full_version": f"{python[1]}.0"}
    here = {canonicalize_name(n): v for n, v, when in requirements if not when or Marker(when).evaluate(variables)}
    named = re.search(r"the extras (\w+(?:, \w+)*) and (\w+):", DOCKERFILE.read_text(encoding="utf-8"))
    assert named is not None
    extras = [*named[1].split(", "), named[2]]
    assert {"metrics", "ship"} <= set(extras)
    for requirement in [Requirement(text) for name in ("dependencies", *extras) for text in asked_for(name)]:
        assert requirement.specifier.contains(here[canonicalize_name(requirement.name)]), requirement


def test_what_is_copied_into_the_build_is_there_and_not_kept_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [
        source
        for one in instructions()
        if one.name == "COPY" and not one.text.startswith("--from")
        for source in one.text.replace("/${TARGETARCH}", "").split()[:-1]
    ]
    assert sorted(copied) == sorted(let_in)
    assert (ROOT / "release" / "locks" / "runtime.txt").exists()
    assert "rm -rf dist/wheels" in (ROOT / "make" / "release.mk").read_text(encoding="utf-8")
    # The sdist lies there as well.
    assert ignored[-1] == "dist/wheels/*.tar.gz"


def test_the_version_that_it_names_is_the_charts() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    named = re.findall(r"--tag (?:\S+/)?inferlog:(\S+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert named == [version, version]
