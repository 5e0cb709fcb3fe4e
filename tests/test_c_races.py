"""ThreadSanitizer looks at C programs and at the library below them, which is instrumented as well.

It follows no threads into a forked child.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance
from tests.c_programs import LIBRARY, SOURCES, configuration_file

pytestmark = pytest.mark.tsan

Configure = Callable[..., Config]
RACE = """
#include <inferlog.h>
#include <pthread.h>
static int shared;
static void *add(void *unused) { for (int at = 0; at < 1000; at++) shared++; return unused; }
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, add, 0)) return 1;
  add(0);
  return pthread_join(thread, 0) || inferlog_abi_version() != INFERLOG_ABI_VERSION;
}
"""
FOUND = 66
"""The exit code of a program with a race."""


class Instrumented:
    """The library with ThreadSanitizer's calls, and the way to link with it."""

    def __init__(self) -> None:
        cargo = shutil.which("cargo", path=f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}")
        if cargo is None or shutil.which("cc") is None:
            pytest.skip("needs cargo and a C compiler")
        rustc = Path(cargo).with_name("rustc")
        asked = [str(rustc), "+nightly", "--print", "sysroot", "--print", "host-tuple"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.returncode != 0:
            pytest.skip("needs nightly Rust: rustup toolchain install nightly")
        sysroot, self.host = said.stdout.split()
        self.runtime = Path(sysroot, "lib", "rustlib", self.host, "lib", "librustc-nightly_rt.tsan.a")
        if not self.runtime.exists():
            pytest.skip(f"nightly Rust has no ThreadSanitizer for {self.host}")
        target = LIBRARY.parent / "target" / "tsan"
        flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
        subprocess.run(
            [cargo, "+nightly", "build", "--quiet", "--package", "inference_logging_c", "--target", self.host],
            cwd=LIBRARY.parent,
            env=os.environ | {"RUSTFLAGS": flags, "CARGO_TARGET_DIR": str(target)},
            check=True,
        )
        self.library = target / self.host / "debug" / "libinferlog_c.a"

    def compile(self, source: Path, program: Path) -> Path:
        """Compile a program; the C compiler's own runtime has not all that the library calls."""
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIE", f"-I{LIBRARY / 'include'}"]
        compiled = f"{program}.o"
        subprocess.run(["cc", *flags, "-fsanitize=thread", "-c", str(source), "-o", compiled], check=True)
        whole = ["-Wl,--whole-archive", str(self.runtime), "-Wl,--no-whole-archive", str(self.library)]
        libraries = ["-Wl,--export-dynamic", "-pthread", "-ldl", "-lm", "-lrt"]
        subprocess.run(["cc", "-pie", "-o", str(program), compiled, *whole, *libraries], check=True)
        return program


@pytest.fixture(scope="module")
def instrumented() -> Instrumented:
    """Build the library."""
    return Instrumented()


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the few suppressions."""
    options = f"suppressions={SOURCES / 'tsan.supp'} exitcode={FOUND} history_size=6"
    environment = os.environ | {"TSAN_OPTIONS": options}
    line = [program, *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("program.c", "threads"),
        ("program.c", "kinds"),
        ("program.c", "requests"),
        ("program.c", "signals"),
        ("model.c", "served"),
    ],
)
def test_no_thread_races_with_another(
    instrumented: Instrumented, configure: Configure, tmp_path: Path, source: str, command: str
) -> None:
    config = configure()
    program = instrumented.compile(SOURCES / source, tmp_path / "program")
    ended = run(program, command, configuration_file(config, tmp_path / "configuration.json"))
    assert ended.returncode == 0, ended.stderr
    assert_books_balance(config)


def test_a_race_of_a_program_is_found(instrumented: Instrumented, tmp_path: Path) -> None:
    source = tmp_path / "race.c"
    source.write_text(RACE)
    ended = run(instrumented.compile(source, tmp_path / "race"))
    assert ended.returncode == FOUND
    assert "data race" in ended.stderr


def test_the_library_is_instrumented(instrumented: Instrumented) -> None:
    """Its own code calls ThreadSanitizer; without that, the tests above would see the C programs only."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm (on Debian: binutils)")
    listed = subprocess.run(
        ["nm", "--undefined-only", instrumented.library], capture_output=True, text=True, check=False
    ).stdout
    assert {"__tsan_read8", "__tsan_write8", "__tsan_atomic64_compare_exchange_val"} <= set(listed.split())
