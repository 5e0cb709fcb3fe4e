"""What is said of licences, vulnerabilities and bills of materials, and of two builds that are to be the same."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "release"))  # its files import each other by bare name

import audit
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
