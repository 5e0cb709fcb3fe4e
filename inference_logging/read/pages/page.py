"""The frame of a page: one file that loads nothing, and says so to the browser.

What strangers wrote (names of routes and models, settings, titles) is text in the HTML, and JSON in elements that no
browser executes. The policy allows only the page's own scripts and style, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inference_logging.read.pages.assets import scripts, style
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
