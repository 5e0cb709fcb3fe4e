"""Build CPython for musl: ``python release/musl_python.py PREFIX [--work DIRECTORY]``.

The sources are those of Debian's packages, from the mirror that this machine's apt has; the compiler for musl, musl and
the kernel's headers are Debian's as well. What a library or an interpreter was built to stays, so that a second run
goes on where the first one ended. The interpreter is of the machine's own processor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from roots import mirror

ROOT: Final = Path(__file__).resolve().parent.parent
SUITE: Final = "bookworm"
LIBC_SUITE: Final = "trixie"
PYTHON: Final = "python3.11"  # that of the suite
MACHINE: Final = os.uname().machine
TRIPLET: Final = f"{MACHINE}-linux-musl"
# Without what asks for more than POSIX and the kernel's headers, and without what no module asks for.
OPENSSL: Final = ("no-shared", "no-tests", "no-afalgeng", "no-async", "no-dso", "--libdir=lib")
# Debian's compiler for musl knows no headers of the kernel, and says that it is one for glibc.
COMPILER: Final = """#!/bin/sh
case "$1" in -print-multiarch|--print-multiarch) echo {triplet}; exit;; esac
exec musl-gcc -idirafter {headers} "$@"
"""


def main() -> int:
    """Build it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prefix", type=Path, help="the folder that is /usr/local later")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "musl", help="where sources and libraries lie")
    given = parser.parse_args()
    build(given.work.absolute(), given.prefix.absolute())
    return 0


def build(work: Path, prefix: Path) -> None:
    """Build the libraries that CPython needs, then CPython, into ``prefix`` as if that were /usr/local."""
    if (prefix / "bin" / "python3").exists():
        return
    sources, libraries = work / "sources", work / "libraries"
    compiler = make_compiler(work)
    build_libraries(sources, libraries, compiler)
    place = source("python", PYTHON, sources)
    # A thread has 128 KiB of stack with musl, which is too little for Python: 1 MiB, as in Alpine.
    found = f"-I{libraries}/include", f"-L{libraries}/lib -Wl,-rpath,{libraries}/lib -Wl,-z,stack-size={1 << 20}"
    configure = ["./configure", "--quiet", "--prefix=/usr/local", f"--with-openssl={libraries}"]
    configure += ["--disable-test-modules", f"CPPFLAGS={found[0]}", f"LDFLAGS={found[1]}", "CFLAGS=-O2 -g0 -fPIC"]
    packages = libraries / "lib" / "pkgconfig"
    run(place, compiler, *configure, f"PKG_CONFIG_LIBDIR={packages}", f"LIBFFI_INCLUDEDIR={libraries}/include")
    # Debian's repairs of this module read the interpreter's own headers, which its own build lets it.
    makefile = place / "Makefile"
    text = makefile.read_text(encoding="utf-8")
    makefile.write_text(text.replace("PYEXPAT_CFLAGS=", "PYEXPAT_CFLAGS=-DPy_BUILD_CORE_MODULE "), encoding="utf-8")
    run(place, compiler, "make", "-s", f"-j{os.cpu_count()}")
    run(place, compiler, "make", "-s", "install", "ENSUREPIP=no", f"DESTDIR={work / 'installed'}")
    shutil.copytree(work / "installed" / "usr" / "local", prefix, symlinks=True)
    # Modules of others are linked with it as well, as with each Python of Alpine.
    for path in (libraries / "lib").glob("libz.so*"):
        shutil.copy(path, prefix / "lib", follow_symlinks=False)


def build_libraries(sources: Path, libraries: Path, compiler: Path) -> None:
    """Build the libraries that are not there yet."""
    into = f"--prefix={libraries}"
    if not (libraries / "lib" / "libz.a").exists():
        place = source("zlib", "zlib", sources)
        run(place, compiler, "./configure", into)
        run(place, compiler, "make", "-s", "install")
    if not (libraries / "lib" / "libffi.a").exists():
        place = source("ffi", "libffi", sources)
        options = ("--disable-shared", "--disable-docs", "--disable-multi-os-directory", "--quiet")
        run(place, compiler, "./configure", *options, into)
        run(place, compiler, "make", "-s", "install")
    if not (libraries / "lib" / "libcrypto.a").exists():
        place = source("openssl", "openssl", sources)
        run(place, compiler, "./Configure", f"linux-{MACHINE}", *OPENSSL, into)
        run(place, compiler, "make", "-s", f"-j{os.cpu_count()}", "build_libs")
        run(place, compiler, "make", "-s", "install_dev")
    if not (libraries / "lib" / "libsqlite3.a").exists():
        place = source("sqlite", "sqlite3", sources)
        run(place, compiler, "./configure", "--quiet", "--disable-shared", "--disable-tcl", "--disable-readline")
        run(place, compiler, "make", "-s", "sqlite3.c", "libsqlite3.la")
        shutil.copy(place / ".libs" / "libsqlite3.a", libraries / "lib")
        shutil.copy(place / "sqlite3.h", libraries / "include")


def make_compiler(work: Path) -> Path:
    """Return a compiler for musl that knows the kernel's headers and says what it is for."""
    headers = work / "headers"
    headers.mkdir(parents=True, exist_ok=True)
    places = {"linux": "linux", "asm-generic": "asm-generic", "asm": f"{MACHINE}-linux-gnu/asm"}
    for name, place in places.items():
        if not (headers / name).exists():
            (headers / name).symlink_to(Path("/usr/include", place))
    compiler = work / "musl-cc"
    compiler.write_text(COMPILER.format(triplet=TRIPLET, headers=headers), encoding="utf-8")
    compiler.chmod(0o755)
    return compiler


def source(name: str, package: str, sources: Path) -> Path:
    """Return the folder of a package's source, loaded and unpacked anew."""
    place = sources / name
    shutil.rmtree(place, ignore_errors=True)
    apt = apt_of(sources / "apt", "deb-src", SUITE)
    subprocess.run([*apt, "source", "--download-only", package], cwd=sources, check=True)
    description = max(sources.glob(f"{package}_*.dsc"), key=lambda path: path.stat().st_mtime)
    subprocess.run(["dpkg-source", "--no-check", "--extract", description, place], stdout=sys.stderr, check=True)
    return place


def libc(work: Path) -> Path:
    """Return a musl that reads what compilers of today write: 1.2.3 knows no relative relocations in short form."""
    place = work / "musl"
    found = place / "usr" / "lib" / TRIPLET / "libc.so"
    if not found.exists():
        apt = apt_of(work / "apt", "deb", LIBC_SUITE)
        subprocess.run([*apt, "download", "musl"], cwd=work, check=True)
        subprocess.run(["dpkg-deb", "--extract", next(work.glob("musl_*.deb")), place], check=True)
    return found


def apt_of(place: Path, kind: str, suite: str) -> list[str]:
    """Return apt-get's command for a suite's packages, or their sources, which this machine need not know otherwise."""
    lists, known = place / "lists", place / "sources.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    known.write_text(f"{kind} {mirror()} {suite} main\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": known,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": lists,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"--option={key}={value}" for key, value in settings.items())]
    if not any(lists.glob("*_dists_*")):
        subprocess.run([*apt, "update"], check=True)
    return apt


def run(place: Path, compiler: Path, *command: str) -> None:
    """Run one step of a build with the compiler for musl."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS")}
    environment["CC"] = str(compiler)
    environment.setdefault("CFLAGS", "-O2 -fPIC")
    subprocess.run(command, cwd=place, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
