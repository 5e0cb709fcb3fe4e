"""The house: wings, the map of the core, public names and their types, the platform, and what make does."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import inference_logging
from tests.kit.c_programs import PLATFORM

ROOT = Path(__file__).parents[2]
PACKAGE = Path(inference_logging.__file__).parent
SECTION = re.compile(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", flags=re.DOTALL | re.MULTILINE)
REFERENCE = {
    module: re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    for module, section in SECTION.findall((ROOT / "docs" / "public.md").read_text(encoding="utf-8"))
}
INTERNAL = re.compile(r"^Internal(, with all modules of this folder)?: users import ", flags=re.MULTILINE)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def mark(module: str) -> re.Match[str] | None:
    """Return where the docstring of a module says that it is internal."""
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    assert docstring, module
    return INTERNAL.search(docstring)


def is_internal(module: str) -> bool:
    """Return whether a name with an underscore, a module's docstring or that of one of its folders says so."""
    if any(part.startswith("_") for part in module.split(".")) or mark(module):
        return True
    parents = [module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1)]
    return any(found[1] for parent in parents if (found := mark(parent)))


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a text imports from the package, or names with dots."""
    statement = r"^ *from (inference_logging[\w.]*) import (\([^)]*\)|.*)"
    for module, names in re.findall(statement, text, flags=re.MULTILINE):
        for name in re.findall(r"\w+", re.sub(r"#.*", "", names)):
            yield module, name
    for module, name in re.findall(r"(?<![\w./])(inference_logging(?:\.[a-z_]+)*)\.(\w+)", text):
        yield module, name


def test_the_reference_names_the_modules_that_are_not_internal() -> None:
    assert sorted(module for module in MODULES if not is_internal(module)) == sorted(REFERENCE)


@pytest.mark.parametrize("module", REFERENCE)
def test_a_public_module_says_in_all_what_the_reference_says(module: str) -> None:
    public = importlib.import_module(module)
    assert REFERENCE[module] == sorted(REFERENCE[module])
    assert sorted(public.__all__) == REFERENCE[module]
    assert all(hasattr(public, name) for name in public.__all__)


def test_what_users_are_shown_imports_public_names_only() -> None:
    folders = ("docs", "examples", "helm")
    shown = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*"))]
    found = {
        (module, name)
        for path in shown
        if path.suffix in {".md", ".py", ".tpl", ".yaml", ".txt"}
        for module, name in imported(path.read_text(encoding="utf-8"))
    }
    wrong = [
        f"{module}.{name}"
        for module, name in found
        if name not in REFERENCE.get(module, ()) and f"{module}.{name}" not in REFERENCE
    ]
    assert wrong == []
    assert {("inference_logging", "Config"), ("inference_logging.triton", "log_requests")} <= found


SERVER = """
import sys
from inference_logging import Handler, InferenceLoggingMiddleware, Logger, get_logger, install_logger
import inference_logging.loguru, inference_logging.metrics, inference_logging.parsl, inference_logging.structlog
import inference_logging.triton, inference_logging.record.run.servers, inference_logging.record.audit_sqlite
print(*sorted(name for name in sys.modules if name.startswith("inference_logging.")), sep="\\n")
"""


def test_no_wing_imports_one_above_it_and_no_files_form_a_circle() -> None:
    linter = pytest.importorskip("importlinter.cli", reason="import-linter needs Python 3.11")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_a_server_loads_nothing_of_another_wing() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "inference_logging.record.asgi.middleware" in loaded
    wings = ("read", "ship", "prove", "cli")
    assert [name for name in loaded if name.split(".")[1] in wings] == []


NATIVE = Path(__file__).parents[2] / "native"


@pytest.fixture(name="native_map")
def load() -> ModuleType:
    """Return `native/map.py` as a module."""
    spec = importlib.util.spec_from_file_location("native_map", NATIVE / "map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_that_of_the_sources(native_map: ModuleType) -> None:
    assert native_map.drawn() == (NATIVE / "README.md").read_text(), "run `make map`"


def test_what_points_upward_or_goes_in_a_circle_is_named(
    native_map: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "queue": {"one": "use crate::two::X;", "two": "use crate::{one::Y, three};", "three": "use lines::encode;"},
        "lines": {"encode": "use queue::one;"},
    }
    monkeypatch.setattr(native_map, "sources", lambda crate: files.get(crate, {}))
    _, wrong = native_map.draw()
    assert wrong[0] == "queue imports lines"
    assert sorted(wrong[1].removeprefix("queue: a circle: ").split(" → ")[:2]) == ["one", "two"]
    with pytest.raises(SystemExit, match="queue imports lines"):
        native_map.drawn()


CONSUMER = Path(__file__).with_name("typed_consumer.py")
WRONG = """
Config().queue_bites
Logger(directory="logs")
Logger().event("step", "n", severity=3)
get_logger(1)
current_request().trace_id
InferenceLoggingMiddleware()
segments(1)
read_records("logs", on_corrupt=len("x"))
follow_records("logs", begin="middle")
capture_records().requests
Change("grown", segments("logs")[0])
"""


def strict(path: Path) -> list[str]:
    """Return what a user's ``mypy --strict`` says, without this project's own configuration."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context"]
    command += ["--python-version=3.11", f"--cache-dir={ROOT / '.mypy_cache' / 'consumer'}", path.name]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def test_a_strict_checker_accepts_every_use_and_refuses_every_wrong_one(tmp_path: Path) -> None:
    text = CONSUMER.read_text()
    program = tmp_path / "program.py"
    program.write_text(text + WRONG)
    found = {int(line.split(":")[1]): line for line in strict(program)}
    last = len(text.splitlines())
    assert [line for number, line in found.items() if number <= last] == []
    wrong = range(last + 2, last + 1 + len(WRONG.splitlines()))
    assert sorted(found) == list(wrong), "a wrong use was accepted"


@pytest.mark.parametrize(
    "module",
    # inference_logging.triton is left out: what it imports is there in Triton's own processes only.
    [
        "inference_logging",
        "inference_logging.metrics",
        "inference_logging.parsl",
        "inference_logging.pytest_plugin",
        "inference_logging.segments",
        "inference_logging.testing",
    ],
)
def test_the_program_uses_every_public_name(module: str) -> None:
    tree = ast.parse(CONSUMER.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module]
    imported = {alias.name for node in imports for alias in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported == set(importlib.import_module(module).__all__)
    assert imported <= used


def test_the_module_and_the_program_are_of_the_half_that_is_to_be_tested(listener_binary: Path) -> None:
    # In a process of its own: what tests start must have it, too.
    module = [sys.executable, "-c", "from inference_logging import _native; print(_native.platform)"]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == f"{PLATFORM}\n"
    shown = subprocess.run([listener_binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("(portable)") == (PLATFORM == "portable")


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
