"""A release: its version, changelog and checkout; the sizes and the wheels that it has."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

import inference_logging._native as native
import installed
import musl
import sizes
from tests.kit.shown import TARGETS
from tests.tools.tools import tool

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with what a release changes, all of it committed."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "release", place / "release", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "native", place / "native", ignore=shutil.ignore_patterns("target", "fuzz"))
    shutil.copytree(ROOT / "helm", place / "helm", symlinks=True)
    shutil.copy(ROOT / "CHANGELOG.md", place)
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        git(place, *command)
    return place


def git(place: Path, *command: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    return subprocess.run(["git", *who, *command], cwd=place, capture_output=True, text=True, check=True).stdout


def version(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "release/version.py", *arguments]
    environment = {
        f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo, which keeps its lock file")
def test_a_release_has_one_version_everywhere_a_tag_and_its_entries(checkout: Path) -> None:
    done = version(checkout, "9.8.7")
    assert done.returncode == 0, done.stderr
    assert git(checkout, "tag").split() == ["v9.8.7"]
    assert git(checkout, "status", "--porcelain") == ""
    for chart in (checkout / "helm", checkout / "helm" / "library"):
        head = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
        assert (head["version"], head["appVersion"]) == ("9.8.7", "9.8.7")
    for added in ("library/values.yaml", "kustomize/sidecar.yaml"):
        assert "9.8.7" in (checkout / "helm" / added).read_text(encoding="utf-8")
    lock = (checkout / "native" / "Cargo.lock").read_text(encoding="utf-8")
    assert 'name = "inferlog-ring"\nversion = "9.8.7"' in lock
    today = datetime.now(timezone.utc).date()
    assert f"## [Unreleased]\n\n## [9.8.7] - {today}\n\n### Added" in (checkout / "CHANGELOG.md").read_text(
        encoding="utf-8"
    )
    assert version(checkout, "9.8.7", "--check").returncode == 0
    assert version(checkout, "9.8.8", "--check").stderr == "native/Cargo.toml: not of version 9.8.8\n"


def test_what_is_unfit_for_a_release_is_named_and_nothing_is_changed(checkout: Path) -> None:
    for number, said in (
        ("1.2", "VERSION=1.2: not three numbers with points between them"),
        ("v1.2.3", "VERSION=v1.2.3: not three numbers with points between them"),
        ("0.0.9", "VERSION=0.0.9: the version is 0.1.0 already"),
    ):
        done = version(checkout, number)
        assert done.returncode != 0
        assert said in done.stderr
        assert git(checkout, "status", "--porcelain") == ""
    git(checkout, "tag", "v2.0.0")
    assert version(checkout, "2.0.0").stderr == "VERSION=2.0.0: this version has a tag already\n"
    (checkout / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n", encoding="utf-8"
    )
    assert version(checkout, "3.0.0").stderr == "the checkout has changes that are not committed\n"
    git(checkout, "commit", "--quiet", "--all", "--message", "no entries")
    assert version(checkout, "3.0.0").stderr == "CHANGELOG.md: no entries under [Unreleased]\n"


def test_a_wheel_is_compressed_again_and_holds_the_same(tmp_path: Path) -> None:
    program = (tmp_path / "program", "inferlog-1.data/scripts/program")
    text = (tmp_path / "text", "inference_logging/text")
    program[0].write_bytes(Path(sys.executable).read_bytes())
    program[0].chmod(0o755)
    text[0].write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    before, after = tmp_path / "before.whl", tmp_path / "after.whl"
    with zipfile.ZipFile(before, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as files:
        for path, name in (program, text):
            files.write(path, name)
    code = "import sys; from pathlib import Path; from wheels import compress; compress(*map(Path, sys.argv[1:]), {})"
    written = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(before), str(after)], cwd=ROOT / "release", check=True)
        written.append(after.read_bytes())
    assert written[0] == written[1]
    assert len(written[0]) < 0.99 * before.stat().st_size
    with zipfile.ZipFile(before) as one, zipfile.ZipFile(after) as other:
        assert other.testzip() is None
        for expected, found in zip(one.infolist(), other.infolist(), strict=True):
            for name in ("filename", "date_time", "external_attr", "compress_type"):
                assert getattr(found, name) == getattr(expected, name), name
            assert other.read(found) == one.read(expected)


def test_a_wheel_names_all_crates_and_not_the_folder_that_it_was_built_in(tmp_path: Path) -> None:
    bill, other = "inferlog-1.dist-info/sboms/core.cyclonedx.json", "inference_logging/a.py"
    record = "inferlog-1.dist-info/RECORD"
    # For one version of Python maturin leaves out what only the static program has.
    for name, crates in (("abi3", ["core", "program"]), ("cp311", ["core"])):
        with zipfile.ZipFile(tmp_path / name, "w") as files:
            files.writestr(other, "a = 1\n")
            files.writestr(bill, json.dumps([f"path+{ROOT.as_uri()}/native/{crate}#0.1.0" for crate in crates]))
            files.writestr(record, f"{other},sha256=of-it,6\n{bill},sha256=of-before,1\n{record},,\n")
    code = "import sys; from pathlib import Path; from wheels import compress; bills = {}\n"
    code += "for name in sys.argv[1:]: compress(Path(name), Path(name + '.whl'), bills)"
    names = [str(tmp_path / "abi3"), str(tmp_path / "cp311")]
    subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT / "release", check=True)
    for name in names:
        with zipfile.ZipFile(f"{name}.whl") as files:
            content = files.read(bill)
            listed = files.read(record).decode()
        assert json.loads(content) == [f"path+file:///inferlog/native/{crate}#0.1.0" for crate in ("core", "program")]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert listed == f"{other},sha256=of-it,6\n{bill},sha256={digest},{len(content)}\n{record},,\n"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_there_are_and_pin_what_they_use(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        for word in step.get("run", "").partition("make ")[2].split():
            assert "=" in word or word in TARGETS, step["run"]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    # The publishing action asks to be named by its branch.
    assert [name for name in used if len(name.partition("@")[2]) != 40] in (
        [],
        ["pypa/gh-action-pypi-publish@release/v1"],
    )
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.real
def test_the_linter_of_workflows_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint"), *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("rustc") is None, reason="needs rustc, which compiles the core")
@pytest.mark.parametrize("has_gil", [True, False])
def test_the_core_refuses_an_interpreter_without_the_gil(has_gil: bool, tmp_path: Path) -> None:
    """The compiler alone says it, before it looks for what the core needs: pyo3-build-config gives it the ``cfg``."""
    source, options = tmp_path / "lib.rs", [] if has_gil else ["--cfg", "Py_GIL_DISABLED"]
    # What stands before the first module: its other names are those of crates that are not compiled here.
    core = (ROOT / "native" / "python" / "src" / "lib.rs").read_text(encoding="utf-8")
    source.write_text(core.partition("\nmod ")[0])
    command = ["rustc", "--edition=2024", "--crate-type=rlib", f"--out-dir={tmp_path}", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (not has_gil)
    assert ("error: inferlog needs an interpreter with the GIL" in done.stderr) == (not has_gil)


MODULE = Path(native.__file__)


@pytest.mark.parametrize(
    ("symbol", "crate"),
    [
        ("_ZN14inferlog_lines6encode7Encoder4line17h6d1c9d0d4b7a5f23E", "lines"),
        ("_ZN4core5slice4sort6stable9quicksort9quicksort17h0123456789abcdefE", "standard library"),
        ("_ZN77_$LT$listener..proxy..Recorded$u20$as$u20$tower_service..Service$LT$R$GT$$GT$4call17hE", "listener"),
        ("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE", "standard library"),
        ("_RNvNtCs26n0fBqFr1z_14regex_automata4util5start", "regex_automata"),
        ("_RNvMs_NtCs1234_2h25framesNtB4_4Head", "h2"),
        ("ZSTD_compressBlock_fast", "zstd"),
        ("blake3_hash_many_avx2", "blake3"),
        ("memcpy", "others in C"),
    ],
)
def test_a_function_counts_to_the_first_crate_in_its_name(symbol: str, crate: str) -> None:
    assert sizes.crate_of(symbol) == crate


def test_the_table_of_a_wheel_has_each_of_its_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(MODULE, "package/_native.so")
        files.writestr("package/one/a.py", "a" * 100)
        files.writestr("package/one/b.py", "b" * 10)
        files.writestr("package/top.py", "")
        files.writestr("package-1.0.dist-info/licenses/LICENSE", "c")
    monkeypatch.setattr(sys, "argv", ["sizes", str(wheel)])
    assert sizes.main() == 0
    first = capsys.readouterr().out.strip().split("\n\n")[0].splitlines()
    rows = {
        name: (int(raw.replace(",", "")), int(packed.replace(",", "")))
        for name, raw, packed in map(str.split, first[1:])
    }
    assert {name: raw for name, (raw, _) in rows.items() if name not in ("_native.so", "all")} == {
        "package/one": 110,
        "package": 0,
        "package-1.0.dist-info": 1,
    }
    assert rows["all"] == tuple(sum(row[at] for name, row in rows.items() if name != "all") for at in (0, 1))
    assert rows["_native.so"][0] == len(sizes.stripped(MODULE.read_bytes())) < MODULE.stat().st_size


def test_the_sections_of_a_file_are_what_is_loaded_of_it() -> None:
    content = MODULE.read_bytes()
    found = dict(sizes.sections(content))
    assert {".text", ".rodata"} <= set(found)
    assert sum(map(len, found.values())) <= len(sizes.stripped(content))


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


@pytest.mark.parametrize("version", [None, "1.63.0", "1.90.1"])
def test_make_names_the_missing_or_old_cargo_before_anything_is_compiled(version: str | None, tmp_path: Path) -> None:
    says = f"echo 'cargo {version} (0 2026-01-01)'" if version else "exit 127"
    (tmp_path / "cargo").write_text(f"#!/bin/sh\n{says}\n")
    (tmp_path / "cargo").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    make = ["make", "-C", str(ROOT), "toolchain"]
    done = subprocess.run(make, env={"PATH": path}, capture_output=True, text=True, check=False)
    found = f" (found: {version})" if version else ""
    missing = f"missing: cargo 1.90 or newer, for building the Rust core{found}. Install Rust with rustup.\n"
    assert done.stderr.splitlines(keepends=True)[:1] == ([] if version == "1.90.1" else [missing])
