"""Draw the crates and their modules, floor by floor, from the imports in their sources, into README.md: ``make map``.

A module stands one floor above the highest that it imports from its own crate. Files below a module belong to it.
"""

from __future__ import annotations

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from textwrap import fill

HERE = Path(__file__).parent
README = HERE / "README.md"
_DRAWING = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)
# Without `program`, whose one file calls `listener`.
CRATES = (
    "ring",
    "queue",
    "request",
    "parameters",
    "lines",
    "segments",
    "listen",
    "rust",
    "proxy",
    "listener",
    "c",
    "python",
)
# The name in imports, where it is another one than that of the folder.
_IMPORTED = {"rust": "inferlog"}
_COMMENT = re.compile(r"//.*")


def sources(crate: str) -> dict[str, str]:
    """Return the text of each module of a crate, that of the files below it included, without comments."""
    found: dict[str, str] = {}
    root = HERE / crate / "src"
    for path in sorted(root.rglob("*.rs")):
        module = path.relative_to(root).parts[0].removesuffix(".rs")
        text = _COMMENT.sub("", path.read_text())
        # From a file at the top, `super` is the crate.
        found[module] = found.get(module, "") + (text.replace("super::", "crate::") if path.parent == root else text)
    for top in ("lib", "main"):
        found.pop(top, None)
    return found


def imports(text: str, crate: str, modules: set[str]) -> set[str]:
    """Return which of a crate's modules a text imports, by paths or by groups of paths."""
    found = set(re.findall(rf"\b{crate}::(\w+)", text))
    for group in re.findall(rf"\b{crate}::\{{([^;]*)\}};", text):
        found |= set(re.findall(r"(?:^|,)\s*(\w+)", group))
    return found & modules


def floors(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules floor by floor, the lowest first. Raises ``CycleError`` where imports make a circle."""
    height: dict[str, int] = {}
    for module in TopologicalSorter(graph).static_order():
        height[module] = 1 + max((height[below] for below in graph[module]), default=-1)
    return [sorted(m for m in graph if height[m] == floor) for floor in range(max(height.values(), default=-1) + 1)]


def draw() -> tuple[str, list[str]]:
    """Return the drawing, the highest crate first, and what is wrong: circles, and imports from a crate above."""
    lines, wrong = [], []
    for crate in reversed(CRATES):
        texts = sources(crate)
        graph = {module: imports(text, "crate", set(texts)) - {module} for module, text in texts.items()}
        below = [other for other in CRATES if other != crate and any(_uses(text, other) for text in texts.values())]
        wrong += [f"{crate} imports {other}" for other in below if CRATES.index(other) > CRATES.index(crate)]
        lines.append(f"{crate} → {', '.join(reversed(below)) or 'nothing'}")
        try:
            lines += [_wrapped(floor) for floor in reversed(floors(graph))]
        except CycleError as error:
            wrong.append(f"{crate}: a circle: {' → '.join(error.args[1])}")
        lines.append("")
    return "\n".join(lines).rstrip(), wrong


def _wrapped(floor: list[str]) -> str:
    return fill("  ".join(floor), 118, initial_indent="    ", subsequent_indent="      ")


def _uses(text: str, crate: str) -> bool:
    return re.search(rf"(?:\buse (?:::)?|[^:\w]){_IMPORTED.get(crate, crate)}::", text) is not None


def drawn() -> str:
    """Return README.md with the drawing as it is now; exit 1 where an arrow points upward or goes in a circle."""
    drawing, wrong = draw()
    if wrong:
        sys.exit("\n".join(wrong))
    return _DRAWING.sub(lambda _: drawing + "\n", README.read_text())


def main() -> None:
    """Write the drawing into README.md, and on standard output."""
    text = drawn()
    README.write_text(text)
    sys.stdout.write(_DRAWING.findall(text)[0])


if __name__ == "__main__":
    main()
