"""What pages show of a command's output, and whether it was printed so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import inference_logging

ROOT = Path(__file__).parents[2]
TARGETS = frozenset(
    target
    for path in (ROOT / "Makefile", *(ROOT / "make").glob("*.mk"))
    for names in re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for target in names.split()
)
"""The targets of the Makefile and of what it includes."""
PACKAGE = Path(inference_logging.__file__).parent  # the checkout's, or the installed one
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *(page for folder in ("examples", "helm", "loadtests") for page in sorted((ROOT / folder).rglob("*.md"))),
        ROOT / "native" / "README.md",
    )
}
"""All pages, by their path in the checkout."""
COMPARISON = ROOT / "docs" / "comparison.md"
NUMBER = r"\d[\d.,:TZ-]*"


def source(path: str) -> str:
    """Return the text of a file by its path in the checkout; one of the package's is that of the package under test."""
    parent = PACKAGE.parent if path.startswith("inference_logging/") else ROOT
    return (parent / path).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def blocks_of(*languages: str) -> Iterator[tuple[str, str, str]]:
    """Yield page, language and text of each block of all pages, or of these languages only."""
    for page, text in PAGES.items():
        fences = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE)
        for about, block in fences:
            language = re.split(r"[\s,]", about)[0]
            if not languages or language in languages:
                yield page, language, block


def comparison_row(way: str) -> list[str]:
    """Return the columns of the first table of docs/comparison.md for a way of logging, without its name."""
    table = COMPARISON.read_text(encoding="utf-8").partition("## What a record costs")[0]
    (row,) = re.findall(rf"^\| {re.escape(way)} \| (.*) \|$", table, re.MULTILINE)
    return [cell.strip() for cell in row.split(" | ")]


def pattern(line: str) -> re.Pattern[str]:
    """Return what a shown line stands for: any number in the place of its own, any id, anything where it has `…`."""
    line = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{16}\b", "…", line.strip())
    parts = [NUMBER.join(map(re.escape, re.split(NUMBER, part))) for part in line.split("…")]
    return re.compile(r"\s+".join(".*".join(parts).replace(r"\ ", " ").split()))


def assert_prints(lines: list[str], output: str) -> None:
    """Find each line that is shown in what was printed, in its order."""
    printed = iter(output.splitlines())
    for line in lines:
        shown = pattern(line)
        assert any(shown.search(other) for other in printed), f"{line}\nis not in\n{output}"
