"""Which wheel is tested in which Python, and which tests a root without some packages can run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "release"))  # its files import each other by bare name

import installed
import musl

OWN = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MACHINE = os.uname().machine


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Return wheels in the order of their names, as a release has them."""
    platforms = f"manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}"
    tags = ["cp310-abi3", f"{OWN}-{OWN}", "cp39-cp39"]
    names = [*(f"inferlog-1.0-{tag}-{platforms}.whl" for tag in tags), "inferlog-1.0-cp310-abi3-win_amd64.whl"]
    for name in names:
        (tmp_path / name).touch()
    return sorted(tmp_path.iterdir())


@pytest.mark.skipif("musl" in sys.implementation._multiarch, reason="the wheels are for glibc")
def test_the_wheel_for_one_version_is_taken_before_that_of_the_stable_abi(wheels: list[Path]) -> None:
    accepted = [wheel.name.split("-")[2:4] for wheel in installed.accepted(wheels, Path(sys.executable))]
    assert accepted == [[OWN, OWN], ["cp310", "abi3"]]


def test_a_python_that_does_not_start_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As pyenv's are for versions that are not chosen.
    (tmp_path / "python3.99").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.99").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(installed, "PYENV", tmp_path / "none")
    assert installed.find("python3.99") == []
    (tmp_path / "python3.99").write_text("#!/bin/sh\nexit 0\n")
    assert installed.find("python3.99") == [tmp_path / "python3.99"]


def test_a_file_that_imports_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    tests = {
        "tests/test_one.py": "import duckdb\n",
        "tests/part/test_two.py": "from zope.interface import Interface\n",
        "tests/test_inside.py": "def query() -> None:\n    import duckdb\n",
        "tests/test_other.py": "import duckdb_extensions\n",
    }
    for name, content in tests.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert musl.needs(tmp_path, ["duckdb", "zope"]) == {"tests/test_one.py", "tests/part/test_two.py"}
