"""The frame of a page: one file that loads nothing, and says so to the browser.

What strangers wrote (names of routes and models, settings, titles) is text in the HTML, and JSON in elements that no
browser executes. The policy allows only the page's own scripts and style, by their digests. Both are those of
``static``, as text. A page is a file, from which a module cannot import another, so each module becomes a function
whose result has its exports. That reads only the forms in which these modules are written: one import or export per
line.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from inference_logging.read.pages.parts import text
from inference_logging.read.private import for_its_owner

_LEAST_LISTED: Final = 4
"""A page with so many sections begins with a list of them."""


class Section(NamedTuple):
    """A part of a page with a heading of its own; its parts are HTML."""

    title: str
    parts: Sequence[str]

    @property
    def name(self) -> str:
        """Its id: the title's letters and digits, which are the page's own words."""
        return "-".join(re.findall(r"[a-z0-9]+", self.title.lower())) or "section"


def write(path: Path, content: str) -> None:
    """Write a page to ``path``, for its owner to read. Raises ``OSError`` if it can't be written."""
    with open(path, "w", encoding="utf-8", opener=for_its_owner) as file:
        file.write(content)


def document(title: str, intro: Iterable[str], sections: Iterable[Section]) -> str:
    """Return the page without empty sections; ``title`` is text, ``intro`` and the parts of ``sections`` are HTML."""
    shown = [section for section in sections if any(section.parts)]
    title = text(title)
    content = "\n".join([*filter(None, intro), _listed(shown), *_sections(shown)])
    scripted = "".join(f"<script>{script}</script>\n" for script in scripts())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style()}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f"{content}\n</main>\n{scripted}</body>\n</html>\n"
    )


def _policy() -> str:
    allowed = " ".join(map(_digest, scripts()))
    return (
        f"default-src 'none'; style-src {_digest(style())}; script-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _listed(sections: Sequence[Section]) -> str:
    if len(sections) < _LEAST_LISTED:
        return ""
    links = "".join(f'<li><a href="#{name}">{text(section.title)}</a></li>' for name, section in _named(sections))
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _sections(sections: Sequence[Section]) -> Iterable[str]:
    for name, section in _named(sections):
        parts = "\n".join(filter(None, section.parts))
        yield f'<section aria-labelledby="{name}">\n<h2 id="{name}">{text(section.title)}</h2>\n{parts}\n</section>'


def _named(sections: Sequence[Section]) -> Iterable[tuple[str, Section]]:
    """Iterate over the sections with ids, of which a page has each once."""
    for place, section in enumerate(sections):
        taken = any(other.name == section.name for other in sections[:place])
        yield (f"{section.name}-{place}" if taken else section.name), section


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
