"""What `make` does to a machine: a system package is installed only where nobody is there to be asked, or agrees."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROBE = "include Makefile\nprobe:\n\t@$(call require,no-such-program,its-package,a test)\n\t@echo went on\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Make a machine whose user is root and whose apt-get notes what it is to do."""
    for name, body in (("id", "echo 0"), ("apt-get", f'echo "$@" >> {tmp_path}/installed')):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    (tmp_path / "probe.mk").write_text(PROBE)
    return tmp_path


def make(machine: Path, answer: str | None) -> tuple[int, str]:
    """Run it with a person at a terminal who gives this answer, or without a terminal."""
    parent, child = pty.openpty()
    os.write(parent, f"{answer}\n".encode())
    done = subprocess.run(
        ["make", "-f", str(machine / "probe.mk"), "probe"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{machine}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL if answer is None else child,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(parent)
    os.close(child)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("answer", ["", "n", "no"])
def test_a_person_who_does_not_agree_gets_no_package_and_the_command_that_installs_it(
    machine: Path, answer: str
) -> None:
    code, said = make(machine, answer)
    assert (code, "went on" in said) == (2, False), said
    assert not (machine / "installed").exists()
    assert "missing: no-such-program, for a test. apt-get install its-package would install it." in said
    assert "Install it (on Debian: sudo apt-get install its-package) and run make again." in said


@pytest.mark.parametrize("answer", ["y", "Yes", None])
def test_a_package_is_installed_where_a_person_agrees_or_nobody_can_be_asked(machine: Path, answer: str | None) -> None:
    code, said = make(machine, answer)
    assert (code, "went on" in said) == (0, True), said
    assert (machine / "installed").read_text() == "install -qq -y its-package\n"
    assert "apt-get install its-package would install it" in said


def test_compiling_the_core_says_how_long_it_takes_before_and_shows_its_steps() -> None:
    command = ["make", "-n", "-W", "pyproject.toml", "build"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    (at,) = (number for number, line in enumerate(lines) if "maturin develop" in line)
    assert "minutes on two cores the first time" in lines[at - 1]
    assert "--quiet" not in lines[at]
