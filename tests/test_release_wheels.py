"""Which wheel is tested in which Python, and which tests a root without some packages can run."""

from __future__ import annotations

import os
import subprocess
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


def test_a_work_folder_beside_the_checkout_can_be_given_by_a_relative_name(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "copy", lambda tree: tree)
    monkeypatch.setattr(installed, "accepted", lambda wheels, _: wheels)
    places: list[Path] = []

    def test(wheel: Path, python: Path, tree: Path, work: Path, tests: list[str]) -> installed.Row:
        places.extend((tree, work))
        return installed.Row(wheel.name, 0, "", str(python), " ".join(tests), ok=True)

    monkeypatch.setattr(installed, "test", test)
    monkeypatch.setattr(sys, "argv", ["installed.py", ".", "--python", sys.executable, "--work", "work"])
    assert installed.main() == 0
    assert set(places) == {tmp_path / "work", tmp_path / "work" / "tree"}


ASKING = """
import subprocess
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def made():
    import absent


def test_asks_itself():
    import absent.part


def test_asks_in_a_process():
    subprocess.run([sys.executable, "-c", "import lacking, absent"], check=True)


def test_asks_by_a_fixture(made):
    pass


def test_asks_by_it_again(made):
    pass


def test_does_without():
    try:
        import absent
    except ModuleNotFoundError:
        pass


def test_asks_for_another():
    import nowhere


def test_is_wrong():
    assert not sys.argv
"""


def test_a_test_that_fails_for_want_of_a_package_is_skipped_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_asking.py").write_text(ASKING)
    (tmp_path / "test_beginning.py").write_text("import shared\n")
    (tmp_path / "shared.py").write_text("from absent import part\n")
    (tmp_path / "test_mistaken.py").write_text("import nowhere\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rsfE", "-p", "lacking_tests", "-p", "no:cacheprovider", "."]
    environment = {
        **os.environ,
        "LACKING": "absent,other",
        "PYTHONPATH": os.pathsep.join([str(Path(musl.__file__).parent), str(tmp_path)]),
    }
    done = subprocess.run(
        [*command, "--continue-on-collection-errors"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(("SKIPPED", "FAILED", "ERROR "))]
    assert [line.split(" - ")[0] for line in said if not line.startswith("SKIPPED")] == [
        "FAILED test_asking.py::test_asks_for_another",
        "FAILED test_asking.py::test_is_wrong",
        "ERROR test_mistaken.py",
    ]
    assert "2 failed, 1 passed, 5 skipped, 1 error" in done.stdout, done.stdout
    assert all("needs absent" in line for line in said if line.startswith("SKIPPED"))
