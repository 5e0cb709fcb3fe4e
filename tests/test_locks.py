"""The locks have what pyproject.toml asks for, for each Python and system, and name no place of packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.append(str(Path(__file__).parent.parent / "release"))  # its files import each other by bare name

import locks

ROOT = Path(__file__).parent.parent
# pytest asks for tomli where Python has none.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ALL = {**locks.SOURCES, **locks.APART}
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
SYSTEMS = ("linux", "darwin")


def asked(source: tuple[str, ...]) -> Iterator[Requirement]:
    """Return what a lock is made from, as its options name it."""
    options = iter(source)
    for option in options:
        if option == "--group":
            yield from group(next(options))
        elif option == "--extra":
            yield from map(Requirement, PROJECT["project"]["optional-dependencies"][next(options)])
        elif option == "--all-extras":
            for extra in PROJECT["project"]["optional-dependencies"].values():
                yield from map(Requirement, extra)
        elif option == "pyproject.toml":
            yield from map(Requirement, PROJECT["project"]["dependencies"])
        else:
            lines = (ROOT / option).read_text(encoding="utf-8").splitlines()
            yield from (Requirement(line) for line in lines if line and not line.startswith("#"))


def group(name: str) -> Iterator[Requirement]:
    for entry in PROJECT["dependency-groups"][name]:
        yield from group(entry["include-group"]) if isinstance(entry, dict) else [Requirement(entry)]


def locked(name: str) -> list[Requirement]:
    lines = locks.path(name).read_text(encoding="utf-8").splitlines()
    return [Requirement(line.removesuffix("\\")) for line in lines if line[:1].isalnum()]


def environment(version: str, system: str) -> dict[str, str]:
    return {
        "python_version": version,
        "python_full_version": f"{version}.1",
        "sys_platform": system,
        "platform_system": "Linux" if system == "linux" else "Darwin",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_a_lock_has_one_version_of_what_is_asked_for(name: str, version: str, system: str) -> None:
    place = environment(version, system)
    have: dict[str, str] = {}
    for requirement in locked(name):
        if applies(requirement, place):
            (exact,) = requirement.specifier
            assert exact.operator == "=="
            assert canonicalize_name(requirement.name) not in have, requirement
            have[canonicalize_name(requirement.name)] = exact.version
    wanted = [requirement for requirement in asked(ALL[name]) if applies(requirement, place)]
    assert wanted
    for requirement in wanted:
        there = have.get(canonicalize_name(requirement.name), "no version")
        assert requirement.specifier.contains(there) if there != "no version" else False, (
            f"{requirement} is asked for and {name}.txt has {there}: run make locks"
        )


@pytest.mark.parametrize("name", ALL)
def test_a_lock_has_hashes_and_no_host(name: str) -> None:
    text = locks.path(name).read_text(encoding="utf-8")
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.search(r"^    --hash=sha256:[0-9a-f]{64}", entry, re.MULTILINE), entry
    assert not re.search(r"://|\b[\w-]+\.(org|com|net|io|dev)\b|--(extra-)?index-url|--find-links", text)


def test_what_several_locks_of_one_environment_have_is_of_one_version() -> None:
    seen: dict[tuple[str, str], str] = {}
    for name in locks.SOURCES:
        for requirement in locked(name):
            for version in VERSIONS:
                if applies(requirement, environment(version, "linux")):
                    key = (canonicalize_name(requirement.name), version)
                    assert seen.setdefault(key, str(requirement.specifier)) == str(requirement.specifier), (key, name)


def test_what_is_installed_here_is_what_the_lock_has() -> None:
    checked = 0
    for requirement in locked("dev"):
        if applies(requirement, {}):
            try:
                installed = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                continue  # an environment with fewer groups
            assert requirement.specifier.contains(installed, prereleases=True), (
                f"{requirement}: {installed} is installed"
            )
            checked += 1
    assert checked > 40
