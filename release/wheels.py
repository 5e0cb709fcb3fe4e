"""Build the wheels and the sdist of a release: ``python release/wheels.py [--target TARGET ...] [--out DIRECTORY]``.

``--check DIRECTORY`` judges those that are there: with auditwheel, abi3audit and twine.

A wheel is for one processor and one C library, and for each Python from 3.10 on (the stable ABI). The static listener
has a wheel of its own for each processor, which needs neither. zig compiles the C code and links, and brings the C
libraries, so neither a container nor a cross compiler is needed. The same commit and the same tools give the same
bytes, in whatever folder.

maturin's wheel is compressed once more by libdeflate: the same format, 3 to 4 % smaller than what zlib finds.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
NATIVE: Final = ROOT / "native"
PROGRAM: Final = NATIVE / "program" / "Cargo.toml"
LISTENER: Final = "inference-logging-listener"

# What the platform's tag says: the oldest C library that the wheel runs with.
TARGETS: Final = {
    "x86_64-unknown-linux-gnu": "manylinux_2_17",
    "aarch64-unknown-linux-gnu": "manylinux_2_17",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}
VERSIONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Of Python, which a wheel can be for alone: its module reads objects in place."""


def main() -> int:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", action="append", choices=TARGETS, help="one of these only, again for another")
    parser.add_argument("--python", action="append", default=[], choices=VERSIONS, help="a wheel for this version too")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "wheels")
    parser.add_argument("--no-sdist", action="store_true")
    parser.add_argument("--only-sdist", action="store_true")
    parser.add_argument("--check", type=Path, metavar="DIRECTORY", help="build nothing")
    given = parser.parse_args()
    if given.check:
        return check(given.check)
    targets = [] if given.only_sdist else given.target or list(TARGETS)
    missing = [target for target in needed(targets) if not installed(target)]
    if missing and run("rustup", "target", "add", *missing, check=False):
        print(f"missing: Rust's targets {' '.join(missing)}. Install them: rustup target add …", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    for target in targets:
        build(target, given.python, given.out)
    for target in sorted(set(map(static, targets))):
        build_listener(target, given.out)
    if not given.no_sdist:
        run(tool("maturin"), "sdist", "--out", str(given.out))
    return 0


def check(directory: Path) -> int:
    """Judge what was built; return 1 if anything is wrong with it."""
    wheels = sorted(directory.glob("*.whl"))
    if not wheels:
        print(f"no wheels in {directory}", file=sys.stderr)
        return 1
    wrong = run(tool("twine"), "check", "--strict", *map(str, sorted(directory.iterdir())), check=False)
    for wheel in wheels:
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes", flush=True)
        if "-abi3-" in wheel.name:
            wrong |= run(tool("abi3audit"), "--strict", "--summary", str(wheel), check=False)
        wrong |= not keeps_its_tag(wheel)
    return int(bool(wrong))


def keeps_its_tag(wheel: Path) -> bool:
    """Whether a wheel runs with every C library of the kind and age that its name promises.

    For glibc auditwheel knows, by the versions of symbols. musl has no such versions: there only the libraries count,
    and auditwheel would look for them on this machine. A static program needs none.
    """
    if "-py3-none-" in wheel.name:
        print("  any C library")
        return libraries(wheel) == set()
    promised = wheel.stem.rpartition(".")[2].rpartition("-")[2]
    if promised.startswith("musllinux"):
        linked = libraries(wheel)
        print(f"  {promised}: needs {', '.join(sorted(linked))}")
        return linked == {"libc.so"}
    show = [tool("auditwheel"), "show", str(wheel)]
    found = " ".join(subprocess.run(show, capture_output=True, text=True, check=False).stdout.split())
    if f'is consistent with the following platform tag: "{promised}"' in found:
        print(f"  {promised}")
        return True
    print(f"  not of {promised}: {found}", file=sys.stderr)
    return False


def libraries(wheel: Path) -> set[str]:
    """Return the shared libraries that a wheel's modules and programs are linked with."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    found: set[Any] = set()
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.endswith((".so", LISTENER)):
                sections = ELFFile(io.BytesIO(files.read(name))).iter_sections()
                tags: list[Any] = [
                    tag for part in sections if isinstance(part, DynamicSection) for tag in part.iter_tags()
                ]
                found.update(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    return found


def needed(targets: list[str]) -> set[str]:
    """Return the targets that Rust needs: each one, and the static listener's."""
    return {*targets, *map(static, targets)}


def static(target: str) -> str:
    """Return the target of the static listener for the processor of ``target``."""
    return f"{target.partition('-')[0]}-unknown-linux-musl"


def installed(target: str) -> bool:
    """Whether Rust's standard library for a target is there."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    return (Path(sysroot) / "lib" / "rustlib" / target).is_dir()


def build(target: str, pythons: list[str], out: Path) -> None:
    """Build the wheels of one target: that of the stable ABI, and those for one version of Python."""
    bills: dict[str, bytes] = {}
    for of_one in ([], *(["--no-default-features", "--interpreter", version] for version in pythons)):
        maturin(target, [TARGETS[target]], of_one, out, bills)


def build_listener(target: str, out: Path) -> None:
    """Build the wheel of the static listener, whose tag names each C library of its processor."""
    maturin(target, sorted(set(TARGETS.values())), ["--manifest-path", str(PROGRAM)], out, {})


def maturin(target: str, platforms: list[str], options: list[str], out: Path, bills: dict[str, bytes]) -> None:
    """Build one wheel, and compress it."""
    of_target = ["--release", "--locked", "--zig", "--target", target, "--compatibility", *platforms]
    with tempfile.TemporaryDirectory() as built:
        run(tool("maturin"), "build", "--quiet", *of_target, *options, "--out", built)
        for wheel in Path(built).iterdir():
            compress(wheel, out / wheel.name, bills)


def compress(wheel: Path, into: Path, bills: dict[str, bytes]) -> None:
    """Write the files of ``wheel`` into another wheel, as small as the format allows in a second.

    Its bills of materials are those of ``bills``, or else come there: the first wheel of a target names all crates,
    while maturin leaves some out of a wheel for one version of Python. It also names crates of the checkout by its
    folder, which they lose.
    """
    with zipfile.ZipFile(wheel) as files, zipfile.ZipFile(into, "w") as smaller:
        contents = {file.filename: files.read(file) for file in files.infolist()}
        for bill in (name for name in contents if name.endswith(".cyclonedx.json")):
            without_folder = contents[bill].replace(ROOT.as_uri().encode(), b"file:///inferlog")
            replace(contents, bill, bills.setdefault(bill, without_folder))
        for file in files.infolist():
            content = contents[file.filename]
            file.compress_type = zipfile.ZIP_DEFLATED
            with smaller.open(file, "w") as place:
                # zipfile knows no compressor but zlib's.
                place._compressor = Libdeflate()  # type: ignore[attr-defined]
                place.write(content)


def replace(contents: dict[str, bytes], name: str, content: bytes) -> None:
    """Replace a file of a wheel, and what its list of files says of it."""
    contents[name] = content
    (record,) = (listed for listed in contents if listed.endswith(".dist-info/RECORD"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    of_it = f"{name},sha256={digest},{len(content)}"
    lines = contents[record].decode().splitlines()
    contents[record] = "".join(f"{of_it if line.startswith(f'{name},') else line}\n" for line in lines).encode()


class Libdeflate:
    """libdeflate at its highest level, in the form of a compressor of zlib."""

    def __init__(self) -> None:
        self._content = b""

    def compress(self, content: bytes) -> bytes:
        """Take more to compress, and return nothing yet."""
        self._content += content
        return b""

    def flush(self) -> bytes:
        """Return all of it, compressed."""
        import deflate

        return bytes(deflate.deflate_compress(self._content, 12))


def target_directory() -> Path:
    """Return where cargo puts what it builds."""
    metadata = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    found = subprocess.run(metadata, cwd=NATIVE, capture_output=True, check=True).stdout
    return Path(json.loads(found)["target_directory"])


def environment() -> dict[str, str]:
    """Return the environment of each build, in which the time and the folders leave no trace in what is built."""
    environ = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS")}
    time = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    # `maturin sdist` has no option for it.
    environ["CARGO_TERM_QUIET"] = "true"
    environ.setdefault("SOURCE_DATE_EPOCH", time.stdout.strip() or "315532800")
    cargo = Path(environ.get("CARGO_HOME", Path.home() / ".cargo"))
    folders = {str(ROOT): "inferlog", str(cargo): "cargo", str(target_directory()): "target"}
    environ["RUSTFLAGS"] = " ".join(f"--remap-path-prefix={path}={name}" for path, name in folders.items())
    environ["CFLAGS"] = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in folders.items())
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    return environ


def tool(name: str) -> str:
    """Return the program of the environment that this script runs in."""
    return str(Path(sys.executable).with_name(name))


def run(*command: str, cwd: Path = ROOT, check: bool = True) -> int:
    """Run a command of the build."""
    return subprocess.run(command, cwd=cwd, env=environment(), check=check).returncode


if __name__ == "__main__":
    sys.exit(main())
