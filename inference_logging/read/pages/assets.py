"""The style and the scripts that stand in a page: those of ``static``, as text, with the modules joined into one.

A page is a file, from which a module cannot import another. So each module becomes a function whose result has its
exports. This reads only the forms in which these modules are written: one import or export per line.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_IMPORT: Final = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?:class|function|const) (\w+)", re.MULTILINE)
_STYLES: Final = ("vendor/uplot/uPlot.min.css", "theme.css", "page.css")


@cache
def style() -> str:
    """Return the style of a page."""
    return "\n".join(map(_text, _STYLES))


@cache
def scripts() -> tuple[str, ...]:
    """Return the scripts of a page in their order: the library of plots with its licence, and the page's own."""
    licence = _text("vendor/uplot/LICENSE").strip()
    return (f"/*\n{licence}\n*/\n{_text('vendor/uplot/uPlot.iife.min.js')}", joined("page"))


def joined(name: str) -> str:
    """Return a module of ``static``, by its name without ``.js``, with all that it imports, as one script."""
    found: dict[str, str] = {}
    _add(name, found)
    return '"use strict";\n' + "\n".join(found.values())


def _add(name: str, found: dict[str, str]) -> None:
    source = _text(f"{name}.js")
    for needed in _IMPORT.findall(source):
        if needed[1] not in found:
            _add(needed[1], found)
    exports = ", ".join(_EXPORT.findall(source))
    body = _IMPORT.sub(r"const { \1 } = module_\2;", source)
    body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
    found[name] = f"const module_{name} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();"


def _text(name: str) -> str:
    return files("inference_logging.read.pages").joinpath("static").joinpath(name).read_text(encoding="utf-8")
