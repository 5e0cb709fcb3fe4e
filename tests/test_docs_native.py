"""Printed from headers and sources: docs/c-reference.md, docs/cpp-reference.md and docs/rust-reference.md."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
HEADER: Final = ROOT / "native" / "c" / "include" / "inferlog.h"
CPP_HEADERS: Final = (HEADER.with_suffix(".hpp"), *sorted((HEADER.parent / "inferlog").glob("*.hpp")))
CRATE: Final = ROOT / "native" / "rust" / "src"
BELOW: Final = {
    "Content": "request/src/capture/settings.rs",
    "Encoding": "request/src/capture/encoding.rs",
    "Plain": "request/src/capture/settings.rs",
    "RequestIds": "request/src/ids.rs",
    "Ending": "request/src/outcome.rs",
    "RpcStatus": "request/src/rpc.rs",
    "severity": "queue/src/severity.rs",
}
"""What the crate shows of the crates below it."""
_PRINTED: Final = (
    "Printed by `python tests/test_docs_native.py {0}`; a test fails while this file says something else. "
    "How it is used: [{1}.md]({1}.md)."
)
NOT_SHOWN: Final = ("Caller", "HeadDecision", "Inner", "Scratch", "Settings", "Trace", "TraceState")
"""Types below that the crate does not show: what needs one is for the other faces of the core."""
_DECLARED: Final = re.compile(
    r"/\*\n(?P<about>(?: [^\n]*\n|\n)*?) \*/\n(?P<code>(?!\n).*?)(?=\n\n|\n#(?:if|endif)|\Z)", re.DOTALL
)
_DETAIL: Final = re.compile(r"^namespace detail \{.*?^\}  // namespace detail$", re.DOTALL | re.MULTILINE)
_ITEM: Final = re.compile(r"pub (?:const |unsafe )*(?P<kind>fn|struct|enum|const|type|trait) (?P<name>\w+)")


class Declared(NamedTuple):
    """A declaration of the header: its name, its comment, and its code."""

    name: str
    about: str
    code: str

    @property
    def kind(self) -> str:
        """The section of the page that has it."""
        if self.code.startswith("#define"):
            return "Constants"
        return "Types" if self.code.startswith("typedef") else "Functions"


def declarations() -> list[Declared]:
    """Return what the header declares with a comment, in its order."""
    text = HEADER.read_text(encoding="utf-8").partition("/* A request under way.")[2]
    found = [Declared("inferlog_request", "A request under way. One thread uses it at a time.", _opaque(text))]
    for match in _DECLARED.finditer(text.partition("/* Values for an event's fields. */")[0]):
        code = match["code"].strip()
        names = re.findall(
            r"\} (\w+);$|^typedef struct \w+ (\w+);$|^#define (\w+)|(inferlog_\w+)\(", code, re.MULTILINE
        )
        about = "\n".join(line.strip() for line in match["about"].splitlines())
        found.append(Declared(next(name for name in (*names[-1], *names[0]) if name), about, code))
    return found


def _opaque(text: str) -> str:
    return "typedef struct inferlog_request inferlog_request;" * ("typedef struct inferlog_request " in text)


def helpers() -> list[str]:
    """Return the prototypes of the functions that the header defines itself."""
    return re.findall(r"^static inline (.*\)) \{", HEADER.read_text(encoding="utf-8"), re.MULTILINE)


def c() -> str:
    """Return the page of the C library."""
    lines = ["# Reference of the C library", "", _PRINTED.format("c", "c")]
    found = declarations()
    for kind in ("Functions", "Types", "Constants"):
        lines += ["", f"## {kind}"]
        for one in found:
            if one.kind == kind:
                about = re.sub(r"\n\n(Requires:)\n", r"\n\n\1 ", one.about)
                lines += ["", f"### {one.name}", "", about.strip(), "", "```c", one.code, "```"]
    lines += ["", "## Values", "", "Functions of the header itself that make values and texts.", "", "```c"]
    return "\n".join([*lines, *(f"{prototype};" for prototype in helpers()), "```"]) + "\n"


def cpp() -> str:
    """Return the page of the C++ headers."""
    lines = ["# Reference of the C++ headers", "", _PRINTED.format("cpp", "c")]
    for header in CPP_HEADERS:
        text = header.read_text(encoding="utf-8")
        lines += ["", f"## {header.relative_to(HEADER.parent)}"]
        about = re.sub(r"^// ?", "", text.partition("#pragma once")[0], flags=re.MULTILINE)
        for part in re.split(r"\n(?=\n)", about.strip()):
            is_code = part.strip("\n").startswith("  ")
            lines += ["", "```cpp", textwrap.dedent(part.strip("\n")), "```"] if is_code else ["", part.strip()]
        shown: dict[str, list[str]] = {}
        for code in cpp_declarations(text):
            named = re.search(r"^(?:class|struct|enum|#define) (\w+)", code, re.MULTILINE)
            shown.setdefault(named[1] if named else "functions", []).append(code)
        for name, texts in shown.items():
            lines += ["", f"### {name}", "", "```cpp", "\n\n".join(texts), "```"]
    return "\n".join(lines) + "\n"


def cpp_declarations(text: str) -> Iterator[str]:
    """Yield what a header declares in the namespace, with its comment and without bodies, then its macros."""
    inside = re.sub(r"^#.*$", "", _DETAIL.sub("", text), flags=re.MULTILINE)
    yield from _declared_in(inside.partition("\nnamespace inferlog {\n")[2].splitlines(), "")
    yield from re.findall(r"(?:^///.*\n)+#define \w+\([^)]*\)", text, re.MULTILINE)


def _declared_in(lines: list[str], indent: str) -> Iterator[str]:
    item: list[str] = []
    reading = iter(lines)
    for line in reading:
        if line in ("}  // namespace inferlog", " private:"):
            return
        if line in ("", " public:"):
            continue
        item.append(line)
        if line.lstrip().startswith("///") or line[-1] not in "{};":
            continue
        body = [line] if line[-1] == "{" else []
        while body and body[-1] not in (f"{indent}}}", f"{indent}}};"):
            body.append(next(reading))
        code = "\n".join(item)
        if body and re.search(r"^ *(?:class|struct) [^(]*\{$", line):
            yield "\n".join([code, *_declared_in(body[1:-1], f"{indent}  "), f"{indent}}};"])
        else:
            yield code if line.startswith("enum ") else _signature(code)
        item = []


def _signature(code: str) -> str:
    """Return a declaration up to the body, or the values of the members."""
    depth = 0
    for match in re.finditer(r"///.*|[(){]|(?<!:):(?!:)", code):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0 and match[0] in ("{", ":"):
            return code[: match.start()].rstrip() + ";"
    return code


def modules() -> dict[str, list[Path]]:
    """Return the crate's public modules with the files whose items they show."""
    text = (CRATE / "lib.rs").read_text(encoding="utf-8")
    found = {name: [CRATE / f"{name}.rs"] for name in re.findall(r"^pub mod (\w+);", text, re.MULTILINE)}
    for name, files in found.items():
        for inner in re.findall(r"^pub use (\w+)::", files[0].read_text(encoding="utf-8"), re.MULTILINE):
            files.append(CRATE / name / f"{inner}.rs")
    return found


def items(path: Path, names: set[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield type and text of each public item of a file, with its comment; a function that stands alone has no type.

    ``names``: of these types only.
    """
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    above: list[str] = []
    inside = ""
    place = 0
    while place < len(lines):
        line = lines[place].strip()
        place += 1
        if line.startswith("impl"):
            owner = re.match(r"impl(?:<[^>]*>)? (\w+)(?:<[^>]*>)? \{", line)
            inside, above = owner[1] if owner else "-", []
        elif lines[place - 1] == "}":
            inside, above = "", []
        elif line.startswith(("///", "#[")):
            above.append(line)
        elif item := _ITEM.match(line):
            code = [lines[place - 1]]
            while not re.search(r"[;}]$" if item["kind"] != "fn" else r"[;{]$", code[-1]) or (
                item["kind"] in ("struct", "enum") and code[0].endswith("{") and len(code) == 1
            ):
                code.append(lines[place])
                place += 1
                if code[-1].strip() == "}":
                    break
            of = inside or (item["name"] if item["kind"] not in ("fn", "const") else "")
            needs_others = item["kind"] == "fn" and re.search(rf"\b(?:{'|'.join(NOT_SHOWN)})\b", "".join(code))
            is_public = inside in ("", "Log") or f"pub struct {inside}" in source or f"pub enum {inside}" in source
            if is_public and not needs_others and (names is None or of in names):
                yield of, "\n".join(_shown(above, code, item["kind"]))
            above = []
        else:
            above = []


def _shown(above: list[str], code: list[str], kind: str) -> Iterator[str]:
    yield from (re.sub(r"\]\((?:crate|super)::[^)]*\)", "]", line) for line in above if line.startswith("///"))
    indent = len(code[0]) - len(code[0].lstrip())
    code = [line[indent:] for line in code]
    if kind == "fn":
        code[-1] = code[-1].removesuffix(" {").removesuffix(";") + ";"
    elif kind == "struct":
        code = [re.sub(r"\((?!pub).*\);", "(…);", line) for line in code]
        private = [line for line in code[1:-1] if not line.strip().startswith(("///", "pub ", "#["))]
        code = [line for line in code if line not in private]
        while len(code) > 2 and code[-2].strip().startswith("///"):
            del code[-2]
        if private:
            code.insert(len(code) - 1, "    …")
    yield from (line for line in code if not line.strip().startswith("#["))


def rust() -> str:
    """Return the page of the crate."""
    lines = ["# Reference of the Rust crate", "", _PRINTED.format("rust", "rust")]
    for module, files in modules().items():
        own, *inner = files
        reexported = " ".join(re.findall(r"^pub use \w+::(.*);", own.read_text(encoding="utf-8"), re.MULTILINE))
        found = [*items(own)]
        found += [one for file in inner for one in items(file, set(re.findall(r"\w+", reexported)))]
        lines += _section(f"inferlog::{module}", found)
    found = []
    for name, path in BELOW.items():
        of_file = items(ROOT / "native" / path, {name} if name[0].isupper() else None)
        found += [(of or name, text) for of, text in of_file]
    return "\n".join([*lines, *_section("inferlog", found)]) + "\n"


def _section(name: str, found: list[tuple[str, str]]) -> Iterator[str]:
    shown = {of: [text for other, text in found if other == of] for of, _ in found if of not in NOT_SHOWN}
    if shown:
        yield from ("", f"## {name}")
    for of, texts in shown.items():
        yield from ("", f"### {of or 'functions'}", "", "```rust", "\n\n".join(texts), "```")


PAGES: Final = {"c": c, "cpp": cpp, "rust": rust}


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_that_of_the_sources(name: str) -> None:
    page = ROOT / "docs" / f"{name}-reference.md"
    assert page.read_text(encoding="utf-8") == PAGES[name](), f"python tests/test_docs_native.py {name} > {page}"


def test_every_name_of_the_header_stands_on_the_page() -> None:
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"\b(?:inferlog|INFERLOG)_\w+", code)) - {"INFERLOG_ZERO", "INFERLOG_REQUESTS"}
    shown = set(re.findall(r"\b(?:inferlog|INFERLOG)_\w+", c()))
    assert names - shown == {"INFERLOG_PRODUCER_ONLY"}, "that one is in docs/c.md"


def test_every_name_of_the_namespace_that_pages_and_examples_use_stands_on_the_page() -> None:
    sources = [ROOT / "docs" / "c.md", *(ROOT / "examples").rglob("*.cpp")]
    used = set(re.findall(r"\binferlog::(\w+)", "".join(path.read_text(encoding="utf-8") for path in sources)))
    headers = _DETAIL.sub("", "".join(path.read_text(encoding="utf-8") for path in CPP_HEADERS))
    public = set(re.findall(r"^(?:class|struct|enum|inline [^(\n]*) (\w+)(?: \{| final| :|\()", headers, re.MULTILINE))
    shown = "\n".join(code for path in CPP_HEADERS for code in cpp_declarations(path.read_text(encoding="utf-8")))
    assert {"log", "value_of", "spdlog_sink", "tensorrt_logger"} <= public
    assert [name for name in sorted(used | public) if not re.search(rf"\b{name}\b", shown)] == []


@pytest.mark.parametrize("page", ["c.md", "c-reference.md"])
def test_a_page_names_nothing_that_the_header_has_not(page: str) -> None:
    found = re.findall(r"\b(?:inferlog|INFERLOG)_\w*\w\b", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    names = {name.rstrip("_") for name in found} - {"INFERLOG_EVENT", "INFERLOG_1"}  # of inferlog.hpp, and of symbols
    assert [name for name in sorted(names) if name not in HEADER.read_text(encoding="utf-8")] == []


def test_what_the_crate_shows_of_others_stands_on_the_page_and_no_page_names_more() -> None:
    text = (CRATE / "lib.rs").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^pub use (?:::request|queue)::(?:\w+::)*(\w+);", text, re.MULTILINE)) == sorted(BELOW)
    headings = re.findall(r"^### (\w+)$", rust(), re.MULTILINE)
    own = " ".join(re.findall(r"^pub use [a-z]+::(\{[^}]*\}|\w+);", text, re.MULTILINE))
    assert set(re.findall(r"\w+", own)) <= set(headings)
    page = (ROOT / "docs" / "rust.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([A-Z][a-z]\w+)`", page)) <= set(headings)


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
