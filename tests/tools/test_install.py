"""Tools are installed once for each pin, and what cannot be had is reported to the step that needs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools import tools
from tools.programs import builders, install, workshop

ROOT = Path(__file__).parents[2]
PINS: dict[str, workshop.Pin] = {
    "plain": {"by": "go_install", "version": "v1"},
    "wanting": {"by": "go_install", "version": "v1", "needs": ["absent"]},
    "absent": {"by": "go_install", "version": "v0"},
}


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install into a directory of this test, by a build that only writes a file; return what was built."""
    names: list[str] = []

    def build(name: str, pin: workshop.Pin) -> None:
        names.append(name)
        if pin["version"] == "v0":
            raise workshop.MissingError("no such version")
        workshop.result(name, pin).write_text(str(pin["version"]), encoding="utf-8")

    for module in (workshop, install, tools):
        monkeypatch.setattr(module, "TOOLS", tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setitem(builders.WAYS, "go_install", build)
    monkeypatch.setattr(tools, "pins", lambda: PINS)
    return names


def test_what_is_there_is_not_built_again(built: list[str]) -> None:
    assert install.install("plain", PINS)
    assert install.install("plain", PINS)
    assert built == ["plain"]


def test_a_changed_pin_is_built_again(built: list[str], tmp_path: Path) -> None:
    assert install.install("plain", PINS)
    assert install.install("plain", {"plain": {**PINS["plain"], "version": "v2"}})
    assert (tmp_path / "bin" / "plain").read_text(encoding="utf-8") == "v2"


def test_what_was_removed_is_built_again(built: list[str], tmp_path: Path) -> None:
    assert install.install("plain", PINS)
    (tmp_path / "bin" / "plain").unlink()
    assert install.install("plain", PINS)
    assert (tmp_path / "bin" / "plain").exists()


def test_the_path_of_a_tool_is_where_it_was_installed(tmp_path: Path) -> None:
    assert install.install("plain", PINS)
    assert tools.tool("plain") == tmp_path / "bin" / "plain"


def test_a_test_without_its_tool_is_skipped_with_the_command_that_gets_it() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"install\.py plain` gets it"):
        tools.tool("plain")


def test_a_test_is_skipped_with_the_reason_for_which_its_tool_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    assert not install.install("absent", PINS)
    assert capsys.readouterr().err == "absent: missing: no such version\n"
    with pytest.raises(pytest.skip.Exception, match="missing: absent: no such version"):
        tools.tool("absent")


def test_what_needs_a_tool_that_cannot_be_had_cannot_be_had_either(built: list[str]) -> None:
    assert not install.install("wanting", PINS)
    assert built == ["absent"]
    with pytest.raises(pytest.skip.Exception, match="missing: wanting: it needs absent"):
        tools.tool("wanting")


def test_a_tool_that_can_be_had_after_all_is_no_longer_missing(tmp_path: Path) -> None:
    assert not install.install("absent", PINS)
    assert install.install("absent", {"absent": {**PINS["absent"], "version": "v1"}})
    assert not (tmp_path / "absent.missing").exists()


def test_a_command_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(workshop.MissingError, match="no command of-this-name"):
        workshop.run("of-this-name")


def test_a_command_that_fails_gives_its_last_line_as_the_reason() -> None:
    with pytest.raises(workshop.MissingError, match="sh -c: second"):
        workshop.run("sh", "-c", "echo first >&2; echo second >&2; exit 3")


@pytest.mark.parametrize(
    ("checkout", "reason"),
    [
        (None, "A_CHECKOUT names no folder with a checkout of a.example/b 1.2.3"),
        ("set(B_VERSION_MAJOR  1)\nset(B_VERSION_MINOR  2)\nset(B_VERSION_PATCH  4)\n", "is not a checkout of"),
        ("", "is not a checkout of"),
        (
            "set(B_VERSION_MAJOR 1)\nset(B_VERSION_MINOR 2)\nset(B_VERSION_PATCH 3)\nerror(\n",
            "cmake -S: |no command cmake",
        ),
    ],
)
def test_a_checkout_that_is_none_of_the_version_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: str | None, reason: str
) -> None:
    pin = {"repository": "a.example/b", "version": "1.2.3", "checkout": "A_CHECKOUT", "options": {}, "target": "b"}
    monkeypatch.setattr(builders, "SCRATCH", tmp_path / "scratch")
    monkeypatch.delenv("A_CHECKOUT", raising=False)
    if checkout is not None:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "CMakeLists.txt").write_text(checkout, encoding="utf-8")
        monkeypatch.setenv("A_CHECKOUT", str(tmp_path / "b"))
    with pytest.raises(workshop.MissingError, match=reason):
        builders.cmake("b", pin)


def test_what_make_installs_is_pinned() -> None:
    lists = re.findall(r"^\w+_TOOLS := (.+)$", (ROOT / "make" / "real.mk").read_text(encoding="utf-8"), re.MULTILINE)
    assert lists
    assert {name for each in lists for name in each.split()} <= set(workshop.pins())


def test_each_pin_names_a_way_to_build_it_and_a_file_that_is_there() -> None:
    for pin in workshop.pins().values():
        assert pin["by"] in builders.WAYS
        assert "file" not in pin or (workshop.HERE / pin["file"]).exists()
