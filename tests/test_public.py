"""What is public is said in one place: `__all__` and `docs/public.md` agree, and every other module is internal."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import inference_logging

ROOT = Path(__file__).parent.parent
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
