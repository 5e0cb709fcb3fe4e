"""What a release is made with: licences, vulnerabilities, bills of materials, locks, pinned actions and images."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import audit
import locks
import offline
import reproduced


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("Mozilla Public License 2.0 (MPL 2.0)", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("UNKNOWN", False),
    ],
)
def test_each_licence_of_an_expression_is_judged(licence: str, allowed: bool) -> None:
    assert audit.allowed(licence) is allowed


def test_an_index_without_vulnerabilities_is_no_good_answer() -> None:
    known = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "not found"}
    wrong = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1"}, {"id": "PYSEC-2"}]}
    assert audit.judged("what", [known]).ok is True
    assert audit.judged("what", [known, skipped]) == ("what", None, "the index says nothing of 1 of 2 packages")
    assert audit.judged("what", [known, skipped, wrong]) == ("what", False, "c 2: PYSEC-1, PYSEC-2")


def test_each_version_of_a_package_is_looked_up(tmp_path: Path) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("a==1 ; python_version < '3.11' \\\n    --hash=sha256:0\na==2 ; python_version >= '3.11' \\\nb==1\n")
    other.write_text("# a comment\nb==1\nc==3\n")
    assert audit.rounds(one, other) == [["a==1", "b==1", "c==3"], ["a==2"]]


def test_what_is_wrong_fails_and_what_cannot_be_looked_up_only_where_all_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"crates": True, "advisories": None, "licences": True, "vulnerabilities": None}

    def results(*options: str) -> int:
        for name, ok in rows.items():
            monkeypatch.setattr(audit, name, lambda name=name, ok=ok: audit.Row(name, ok, "said"))
        monkeypatch.setattr(sys, "argv", ["audit.py", *options])
        return audit.main()

    assert results() == 0
    assert "advisories: not looked up: said\n" in capsys.readouterr().out
    assert results("--complete") == 1
    rows["licences"] = False
    assert results() == 1
    assert "licences: WRONG: said\n" in capsys.readouterr().out


def wheel(place: Path, *members: tuple[str, str, int], minute: int = 0) -> Path:
    place.mkdir(exist_ok=True)
    path = place / "inferlog-1-cp310-abi3-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, minute, 0))
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def test_two_builds_are_the_same_or_the_members_that_differ_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = ("a.py", "a", 0o644), ("b.json", "b", 0o644)
    first = wheel(tmp_path / "first", a, b)
    assert reproduced.compare(first.parent, wheel(tmp_path / "same", a, b).parent) == 0
    assert "the same" in capsys.readouterr().out
    for name, other, said in (
        ("content", [a, ("b.json", "c", 0o644)], "b.json"),
        ("mode", [("a.py", "a", 0o600), b], "a.py"),
        ("more", [a, b, ("c", "", 0o644)], "c, the order of the members"),
        ("order", [b, a], "the order of the members"),
    ):
        assert reproduced.compare(first.parent, wheel(tmp_path / name, *other).parent) == 1
        assert capsys.readouterr().out == f"{first.name}: differs in {said}\n"
    assert reproduced.compare(first.parent, wheel(tmp_path / "time", a, b, minute=2).parent) == 1
    assert capsys.readouterr().out == f"{first.name}: differs in a.py, b.json\n"
    (tmp_path / "empty").mkdir()
    assert reproduced.compare(first.parent, tmp_path / "empty") == 1
    assert capsys.readouterr().out == f"{first.name}: built once only\n"


def test_two_sdists_are_compared_by_their_members(tmp_path: Path) -> None:
    paths = []
    for name, mode in (("one", 0o644), ("other", 0o600)):
        paths.append(tmp_path / f"{name}.tar.gz")
        with tarfile.open(paths[-1], "w:gz") as archive:
            for member, bits in (("p/a", 0o644), ("p/b", mode)):
                info = tarfile.TarInfo(member)
                info.mode, info.size = bits, 1
                archive.addfile(info, io.BytesIO(b"x"))
    assert reproduced.differences(*paths) == ["p/b"]


def test_a_crate_that_the_sdists_lock_has_not_is_seen(tmp_path: Path) -> None:
    lock = tmp_path / "Cargo.lock"
    a = '[[package]]\nname = "a"\nversion = "1.0.0"\ndependencies = [\n "b",\n]\n'
    lock.write_text(f'version = 4\n\n{a}\n[[package]]\nname = "b"\nversion = "1.0.0"\n')
    shipped = offline.crates(lock)
    lock.write_text('version = 4\n\n[[package]]\nname = "a"\nversion = "1.0.0"\n')
    assert offline.crates(lock) < shipped
    lock.write_text('version = 4\n\n[[package]]\nname = "a"\nversion = "1.0.1"\n')
    assert offline.crates(lock) - shipped == {'name = "a"\nversion = "1.0.1"'}


def test_a_bill_of_materials_is_taken_out_of_the_wheel_and_judged_by_its_schema(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx", reason="of the group audit, which make lint and make sbom install")
    import sbom

    good = json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": []})
    built = wheel(
        tmp_path, ("inferlog-1.dist-info/sboms/inferlog.cyclonedx.json", good, 0o644), ("a.json", "{}", 0o644)
    )
    assert sbom.crates(built) == {"inferlog-manylinux_2_17_x86_64.cdx.json": good}
    assert sbom.judge(good) is None
    bad = good.replace('"version": 1', '"version": "one"')
    assert "'one' is not of type 'integer'" in str(sbom.judge(bad))


ROOT = Path(__file__).parents[2]
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
    # Phoenix begins with Python 3.11.
    assert wanted or (name, version) == ("phoenix", "3.10")
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


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_every_action_of_a_workflow_is_named_by_its_commit(workflow: Path) -> None:
    used = re.findall(r"uses:\s*(\S+)", workflow.read_text(encoding="utf-8"))
    assert used
    assert [name for name in used if not re.fullmatch(r"[^@]+@[0-9a-f]{40}", name)] == []


def test_the_base_of_the_images_is_named_by_its_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", base)
