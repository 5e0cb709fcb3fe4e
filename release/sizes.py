"""Print what the bytes of wheels are: ``python release/sizes.py WHEEL...``, or ``make sizes``, which builds them.

A native file is counted as if it were stripped. If it has its symbols (``CARGO_PROFILE_RELEASE_STRIP=none``), its code
is shown by crate as well: by the first crate in a symbol's name. Inlined code is its caller's, and a generic function
of the standard library that a crate uses is the standard library's.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

LEAST: Final = 0.01
"""The share of a file's code that a crate needs for a line of its own."""

STANDARD: Final = ("core", "alloc", "std")
# Of C libraries, whose names have no crate.
PREFIXES: Final = {"zstd": ("ZSTD", "HUF_", "FSE_", "HIST_", "XXH", "POOL_", "ERR_"), "blake3": ("blake3_",)}
# The first path in the name of an implementation: _$LT$crate..Type$u20$as$u20$crate..Trait$GT$
PATH: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:\.\.|::)")
# A crate's root in the newer form of names: C, perhaps a number that makes two differ, length, name.
ROOT_OF_CRATE: Final = re.compile(r"C(?:s[0-9A-Za-z]*_)?(\d+)_?([A-Za-z_]\w*)")


def main() -> int:
    """Print the tables of each wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", type=Path, nargs="+")
    for wheel in parser.parse_args().wheels:
        show(wheel)
    return 0


def show(wheel: Path) -> None:
    """Print the tables of one wheel."""
    native: dict[str, bytes] = {}
    parts: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    with zipfile.ZipFile(wheel) as files:
        for file in files.infolist():
            content = files.read(file)
            if content.startswith(b"\x7fELF"):
                native[file.filename] = content
                part, content = file.filename.rpartition("/")[2], stripped(content)
                packed = compressed(content)
            else:
                part, packed = part_of(file.filename), file.compress_size
            parts[part] += packed
            raw[part] += len(content)
    rows = [(part, raw[part], bytes_) for part, bytes_ in parts.most_common()]
    table(wheel.name, "compressed", [*rows, ("all", raw.total(), parts.total())])
    for name, content in native.items():
        table(name, "compressed alone", [(part, len(of), compressed(of)) for part, of in sections(content)])
        crates = code_by_crate(content)
        if crates:
            table("its code, by crate", "% of it", shares(crates))


def table(title: str, column: str, rows: list[tuple[str, int, int]]) -> None:
    """Print rows of a name and two numbers."""
    print(f"\n{title:44} {'bytes':>12} {column:>17}")
    for name, first, second in rows:
        print(f"  {name:42} {first:12,} {second:17,}")


def part_of(name: str) -> str:
    """Return the folder that a file of a wheel counts to: those of the package one by one."""
    top, *below = name.split("/")
    return f"{top}/{below[0]}" if len(below) > 1 and not top.endswith(".dist-info") else top


def compressed(content: bytes) -> int:
    """Return how many bytes it has in a wheel."""
    import deflate

    return len(deflate.deflate_compress(content, 12))


def stripped(content: bytes) -> bytes:
    """Return an ELF file up to the end of what is loaded of it, behind which its symbols are."""
    from elftools.elf.elffile import ELFFile

    segments = ELFFile(io.BytesIO(content)).iter_segments("PT_LOAD")
    return content[: max(segment["p_offset"] + segment["p_filesz"] for segment in segments)]


def sections(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Return the sections of an ELF file that are loaded from it, the largest first."""
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    found = [
        (part.name, part.data())
        for part in ELFFile(io.BytesIO(content)).iter_sections()
        if part["sh_flags"] & SH_FLAGS.SHF_ALLOC and part["sh_type"] != "SHT_NOBITS"
    ]
    yield from sorted(found, key=lambda part: -len(part[1]))


def code_by_crate(content: bytes) -> Counter[str]:
    """Return the bytes of functions by crate; nothing for a file without symbols."""
    from elftools.elf.elffile import ELFFile

    symbols: Any = ELFFile(io.BytesIO(content)).get_section_by_name(".symtab")
    functions = [symbol for symbol in symbols.iter_symbols() if is_function(symbol)] if symbols else []
    # Several names of one function count once.
    places = {symbol["st_value"]: symbol for symbol in functions}
    found: Counter[str] = Counter()
    for symbol in places.values():
        found[crate_of(symbol.name)] += symbol["st_size"]
    return found


def is_function(symbol: Any) -> bool:
    """Whether a symbol is that of a function in the file."""
    return bool(symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF")


def crate_of(symbol: str) -> str:
    """Return the crate in the name of a function, or the C library."""
    if symbol.startswith("_R"):
        root = ROOT_OF_CRATE.search(symbol)
        crate = root[2][: int(root[1])] if root else "others"
    elif symbol.startswith("_ZN"):
        length = re.match(r"\d+", symbol[3:])
        name = symbol[3 + length.end() :][: int(length[0])] if length else ""
        path = PATH.search(re.sub(r"\$\w+\$", " ", name)) if "$" in name else None
        crate = path[1] if path else name if name.isidentifier() else "others"
    else:
        crate = next((name for name, prefixes in PREFIXES.items() if symbol.startswith(prefixes)), "others in C")
    return "standard library" if crate in STANDARD else crate.removeprefix("inferlog_")


def shares(crates: Counter[str]) -> list[tuple[str, int, int]]:
    """Return crates by size with their share in %, the small ones together."""
    whole = crates.total()
    large = [(name, size) for name, size in crates.most_common() if size >= LEAST * whole]
    rest = whole - sum(size for _, size in large)
    return [(name, size, round(100 * size / whole)) for name, size in [*large, ("crates below 1 %", rest)]]


if __name__ == "__main__":
    sys.exit(main())
