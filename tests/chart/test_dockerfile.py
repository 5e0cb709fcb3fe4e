"""The image: linted, and held against chart and package. It is not built here: that takes a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.chart.chart import CHART

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
    assert [base for base in foreign if not re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z-]+", base)] == []


def test_what_is_copied_from_a_stage_comes_from_one_that_stands_before() -> None:
    before: list[str] = []
    for stage, found in stages().items():
        sources = [match[1] for one in found if (match := re.match(r"--from=(\S+)", one.text))]
        assert set(sources) <= set(before), stage
        before.append(stage)
    assert {"build", "install"} <= set(before)


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


def test_the_image_without_python_has_the_program_that_the_chart_starts_and_nothing_else() -> None:
    stage = texts("listener")
    assert stage["FROM"] == "scratch AS listener"
    source, place = stage["COPY"].removeprefix("--from=build ").split()
    program = place + Path(source).name
    assert stage["ENTRYPOINT"] == f'["{program}"]'
    assert stage["CMD"] == last()["CMD"]
    assert f"command: [{program}, listen]" in (CHART / "templates" / "_containers.tpl").read_text(encoding="utf-8")
    # The same file is in the wheel: the folder is the one where maturin looks.
    module = re.search(r'^module-name = "(.+)"$', PROJECT, re.MULTILINE)
    assert module is not None
    assert source.startswith(f"/source/{module[1]}.data/scripts/")


def test_the_image_has_the_extras_of_metrics_and_shipping() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    extras = re.search(r"\$\{wheel\}\[([^]]+)\]", text)
    assert extras is not None
    assert {"metrics", "ship"} <= set(extras[1].split(","))
    assert [extra for extra in extras[1].split(",") if f"\n{extra} = [" not in PROJECT] == []


def test_the_toolchain_is_not_older_than_the_core_asks_for() -> None:
    asked = re.search(r'^rust-version = "(\d+)\.(\d+)"', (ROOT / "native" / "Cargo.toml").read_text(), re.MULTILINE)
    rust = next(re.match(r"rust:(\d+)\.(\d+)", one.text) for one in instructions() if one.text.startswith("rust:"))
    assert asked is not None
    assert rust is not None
    assert tuple(map(int, rust.groups())) >= tuple(map(int, asked.groups()))
    maturin = re.search(r"maturin==(\d+)\.(\d+)", DOCKERFILE.read_text())
    wanted = re.search(r'"maturin>=(\d+)\.(\d+),<2"', PROJECT)
    assert maturin is not None
    assert wanted is not None
    assert tuple(map(int, maturin.groups())) >= tuple(map(int, wanted.groups()))


def test_what_is_copied_into_the_build_is_there_and_not_kept_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [
        source
        for one in instructions()
        if one.name == "COPY" and not one.text.startswith("--from")
        for source in one.text.split()[:-1]
    ]
    assert sorted(copied) == sorted(let_in)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    # What a build on this machine has left there would be of another Python or Rust.
    assert any(fnmatch("inference_logging/sub/_native.abi3.so", line.replace("**/", "*")) for line in ignored[1:])
    assert "native/target" in ignored


def test_the_version_that_it_names_is_the_charts() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    named = re.findall(r"--tag inferlog:(\S+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert named == [version]
