"""docs/c.md names what the header declares; each declaration of the header has its comment, which is the reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
HEADER: Final = (ROOT / "native" / "c" / "include" / "inferlog.h").read_text(encoding="utf-8")


def test_the_page_names_nothing_that_the_header_has_not() -> None:
    found = re.findall(r"\b(?:inferlog|INFERLOG)_\w*\w\b", (ROOT / "docs" / "c.md").read_text(encoding="utf-8"))
    names = {name.rstrip("_") for name in found} - {"INFERLOG_EVENT", "INFERLOG_1"}  # of inferlog.hpp, and of symbols
    assert [name for name in sorted(names) if name not in HEADER] == []


def test_each_function_of_the_library_has_a_comment() -> None:
    functions = re.findall(r"(\*/\n)?^[a-z][\w *]*?\b(inferlog_\w+)\([^;{]*\);", HEADER, re.MULTILINE)
    assert len(functions) > 20
    assert [name for comment, name in functions if not comment] == []
