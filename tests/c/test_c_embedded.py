"""The C library for small machines, its example, and what ThreadSanitizer sees of programs in C."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from inference_logging import Config
from tests.kit.books import assert_books_balance, variables
from tests.kit.c_programs import LIBRARY, SOURCES, STRICT_C, compiled, configuration_file, install
from tests.kit.c_programs import run as run_program
from tests.kit.command_line import run
from tests.kit.identity import SECRET, everything, keyed_hash
from tests.kit.sidecars import Sidecar
from tests.kit.signatures import Configure
from tests.kit.support import read_records

LARGEST_LIBRARY_BYTES: Final = 200_000
LARGEST_MEMORY_KB: Final = 256
DIST: Final = LIBRARY.parent.parent / "dist" / "c-embedded"
TARGETS: Final = {
    "x86_64-unknown-linux-musl": ("x86_64-linux-musl", None),
    "aarch64-unknown-linux-musl": ("aarch64-linux-musl", "qemu-aarch64-static"),
    "armv7-unknown-linux-musleabihf": ("arm-linux-musleabihf", "qemu-arm-static"),
}
"""Of each target of Rust: zig's name for it, and what runs its programs here."""
SMALL: Final = {
    "queue_bytes": "64KiB",
    "max_record_bytes": "16KiB",
    "in_flight_slots": 0,
    "chunk_timeline_limit": 0,
    "capture_head_bytes": "1KiB",
    "capture_tail_bytes": "1KiB",
    "capture_text_bytes": "4KiB",
    "listener": "external",
}


@pytest.fixture(params=sorted(TARGETS))
def target(request: pytest.FixtureRequest) -> str:
    """Return a target whose library `make c-embedded` has built."""
    if not (DIST / request.param / "lib" / "libinferlog.a").exists():
        pytest.skip(f"needs dist/c-embedded/{request.param}, which `make c-embedded` builds")
    return str(request.param)


@pytest.fixture
def program(target: str, tmp_path: Path) -> list[str]:
    """Return the command of the static program for a target."""
    return static_program(target, tmp_path)


def static_program(target: str, directory: Path) -> list[str]:
    """Link the program with nothing but the library and the C library of a target."""
    name, emulator = TARGETS[target]
    if emulator is not None and shutil.which(emulator) is None:
        pytest.skip(f"needs {emulator} (on Debian: qemu-user-static)")
    compiler = [sys.executable, "-m", "ziglang", "cc"]
    if subprocess.run([*compiler, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("needs zig: pip install --group embedded")
    built, installed = directory / "embedded", DIST / target
    subprocess.run(
        [
            *compiler,
            *("-target", name, "-static", "-Os", "-s", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"),
            *(f"-I{installed}/include", str(SOURCES / "embedded.c"), f"{installed}/lib/libinferlog.a"),
            *("-o", str(built)),
        ],
        check=True,
    )
    return [str(built)] if emulator is None else [emulator, str(built)]


def write_configuration(config: Config, path: Path) -> Path:
    """Write the parameters that a program on a small machine is given: those that differ from their defaults."""
    given = {"queue_directory": str(config.queue_directory), "directory": str(config.directory), **SMALL}
    path.write_text("".join(f"{name}: {value}\n" for name, value in {"version": 1, **given}.items()))
    return path


@pytest.fixture
def small(configure: Configure, tmp_path: Path) -> tuple[Config, Path]:
    """Return a small configuration, and the same as a file."""
    config = configure(queue_directory=tmp_path / "queues", **SMALL)
    return config, write_configuration(config, tmp_path / "configuration.yaml")


@pytest.mark.embedded
def test_it_is_small_and_needs_the_c_library_alone(target: str) -> None:
    library = DIST / target / "lib" / "libinferlog.so.1"
    assert library.stat().st_size <= LARGEST_LIBRARY_BYTES
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf (on Debian: binutils)")
    listed = subprocess.run(["readelf", "--dynamic", "--wide", library], capture_output=True, text=True, check=True)
    assert re.findall(r"\(NEEDED\).*\[(.+)\]", listed.stdout) == ["libc.so"]
    symbols = subprocess.run(["readelf", "--dyn-syms", "--wide", library], capture_output=True, text=True, check=True)
    exported = {
        line.split()[7].split("@")[0] for line in symbols.stdout.splitlines() if re.search(r"GLOBAL.* \d+ ", line)
    }
    assert "inferlog_emit" in exported
    assert all(name.startswith(("inferlog_", "INFERLOG_")) for name in exported)


@pytest.mark.embedded
def test_what_it_leaves_is_recovered_and_proved_on_this_machine(program: list[str], small: tuple[Config, Path]) -> None:
    config, file = small
    done = subprocess.run([*program, "left", file, "400"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "400 0 400 400\n"), done
    recovered = run("recover", "--config", str(file), str(config.queue_directory), "--json")
    assert (recovered.code, json.loads(recovered.out)["recovered"]) == (0, 400)
    found = read_records(config.directory, "sensor.reading")
    assert [(record["number"], record["celsius"], record["place"], record["parts"]) for record in found] == [
        (number, number / 8, "hall 7", [1, {"a": None}]) for number in range(400)
    ]
    verified = run("verify", str(config.directory), "--queue-directory", str(config.queue_directory))
    assert verified.code == 0, verified


@pytest.mark.embedded
def test_killed_at_any_instant_it_has_lost_nothing(program: list[str], small: tuple[Config, Path]) -> None:
    config, file = small
    accepted = 0
    for _ in range(3):
        with (
            Sidecar(config, "--config", str(file)),
            subprocess.Popen([*program, "forever", file, "0"], stdout=subprocess.PIPE, text=True) as running,
        ):
            assert running.stdout is not None
            numbers = [int(running.stdout.readline()) for _ in range(20)]
            running.send_signal(signal.SIGKILL)
            numbers += [int(line) for line in running.stdout.read().splitlines()]
        accepted += numbers[-1]
    assert_books_balance(config)
    assert len(read_records(config.directory, "sensor.reading")) >= accepted


@pytest.mark.embedded
def test_it_runs_in_little_memory_beside_a_listener(small: tuple[Config, Path], tmp_path: Path) -> None:
    target = f"{os.uname().machine}-unknown-linux-musl"
    if not (DIST / target / "lib" / "libinferlog.a").exists():
        pytest.skip(f"needs dist/c-embedded/{target}, which `make c-embedded` builds")
    config, file = small
    program = static_program(target, tmp_path)
    with Sidecar(config, "--config", str(file)):
        done = subprocess.run(
            [*program, "listened", file, "10000"], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 0, done
    *lines, counts = done.stdout.splitlines()
    assert counts == "10000 10000 0 0"
    own, shared, resident = memory_kb(lines, config)
    assert shared == 128 + 16 + 4
    assert own + shared <= LARGEST_MEMORY_KB, (own, shared)
    # The code as well, which is read from the file and can be read again.
    assert resident <= LARGEST_MEMORY_KB + LARGEST_LIBRARY_BYTES / 1024 + 32, resident
    assert len(read_records(config.directory, "sensor.reading")) == 10_000
    assert_books_balance(config)


def memory_kb(lines: list[str], config: Config) -> tuple[int, int, int]:
    """Return what the process has for itself, the size of the directory's mapped files, and all that is resident."""
    own = shared = resident = 0
    is_shared = False
    for line in lines:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_shared = f" {config.queue_directory}/" in line
        name, _, rest = line.partition(":")
        kb = int(rest.split()[0]) if rest.endswith(" kB") else 0
        own += kb if name == "Anonymous" else 0
        shared += kb if is_shared and name == "Size" else 0
        resident += kb if name == "Rss" else 0
    return own, shared, resident


@pytest.mark.embedded
def test_with_requests_and_without_a_listener_it_records_the_headers_that_are_asked_for(
    keyed: Configure, tmp_path: Path
) -> None:
    installed = install(tmp_path / "installed", "--no-default-features", "--features", "requests")
    program = compiled(installed, "program.c", *STRICT_C)
    headers = ["x-tenant=tenant.id", "x-team", "authorization:hash=api_key.hash"]
    config = keyed(record_headers=headers, listener="external")
    with Sidecar(config):
        _, counts = run_program(program, "requests", config)
    assert counts == "5 5 0"
    whole, *others = read_records(config.directory, "request")
    assert (whole["tenant.id"], whole["http.request.header.x-team"]) == ("acme", "search")
    assert whole["api_key.hash"] == keyed_hash(SECRET)
    assert not [name for record in others for name in record if name in ("tenant.id", "api_key.hash")]
    assert not [name for name in whole if "other" in name]
    assert SECRET.encode() not in everything(config.directory) + everything(config.resolved_queue_directory)
    assert_books_balance(config)


def refused(program: list[str], file: Path, text: str) -> list[str]:
    file.write_text(text)
    done = subprocess.run([*program, "left", file, "1"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr.removeprefix("open: ").splitlines()


@pytest.mark.embedded
def test_a_wrong_parameter_is_named_as_everywhere(program: list[str], small: tuple[Config, Path]) -> None:
    _, file = small
    wrong = "sensors: 7\nredact_custom: a+\nrotate_bytes: much\n"
    lines = file.read_text().replace("queue_bytes: 64KiB", "queue_bytes: 5")
    named = [line.split(":")[0] for line in refused(program, file, lines + wrong)]
    assert sorted(named) == ["queue_bytes=5 (file)", 'redact_custom="a+" (file)', "sensors (file)"]


@pytest.mark.embedded
def test_a_file_of_json_is_refused_with_what_it_must_be(program: list[str], small: tuple[Config, Path]) -> None:
    _, file = small
    (said,) = refused(program, file, json.dumps({"version": 1}))
    assert said == f"config_file='{file}': must be lines of a name, a colon, a space and a value"


@pytest.mark.embedded
def test_what_is_redacted_is_compared_by_the_listener(program: list[str], small: tuple[Config, Path]) -> None:
    config, file = small
    redacted = file.read_text() + 'redact_custom: {"seat":"hall [0-9]"}\nredact_fields: [ "celsius" ]\n'
    plain = file.with_name("plain.yaml")
    plain.write_text(file.read_text())
    file.write_text(redacted)
    done = subprocess.run([*program, "left", file, "3"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done
    queues = str(config.queue_directory)
    other = run("recover", "--config", str(plain), queues)
    assert other.code != 0
    assert "redact_custom" in other.out + other.err
    assert run("recover", "--config", str(file), queues).code == 0
    found = read_records(config.directory, "sensor.reading")
    assert [(record["celsius"], record["place"]) for record in found] == [("[redacted:field]", "[redacted:seat]")] * 3


SOURCE = LIBRARY.parent.parent / "examples" / "c_sensor" / "sensor.c"
COUNT = 5_000
ENTRY_BYTES = 128


@pytest.fixture(scope="module")
def sensor(installed: Path) -> Path:
    """Compile the example."""
    return compiled(installed, str(SOURCE), *STRICT_C)


@pytest.mark.servers
@pytest.mark.parametrize("queue_bytes", ["64KiB", "8MiB"])
def test_each_reading_is_in_the_file_and_in_the_segments(
    sensor: Path, configure: Configure, tmp_path: Path, queue_bytes: str
) -> None:
    config = configure(queue_bytes=queue_bytes, max_record_bytes=16384)
    by_write = tmp_path / "readings.log"
    ended = subprocess.run(
        [sensor, str(COUNT), by_write],
        env=os.environ | variables(config),
        timeout=180,
        check=True,
        capture_output=True,
        text=True,
    )
    lines = by_write.read_text().splitlines(keepends=True)
    assert {len(line) for line in lines} == {ENTRY_BYTES}
    written = [(int(number), samples) for number, samples in map(str.split, lines)]
    assert [number for number, _ in written] == list(range(COUNT))
    records = read_records(config.directory, "sensor.reading")
    assert [(record["number"], record["samples"]) for record in records] == written
    assert re.search(r"^write / inferlog: \d+\.\d$", ended.stdout, re.MULTILINE)
    assert_books_balance(config)


@pytest.mark.servers
def test_a_file_that_cannot_be_written_is_reported(sensor: Path, configure: Configure, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sensor, "1", tmp_path / "absent" / "readings.log"],
        env=os.environ | variables(configure()),
        timeout=180,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "absent" in ended.stderr


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


def raced(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the few suppressions."""
    options = f"suppressions={SOURCES / 'tsan.supp'} exitcode={FOUND} history_size=6"
    environment = os.environ | {"TSAN_OPTIONS": options}
    line = [program, *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.tsan
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
    ended = raced(program, command, configuration_file(config, tmp_path / "configuration.json"))
    assert ended.returncode == 0, ended.stderr
    assert_books_balance(config)


@pytest.mark.tsan
def test_a_race_of_a_program_is_found(instrumented: Instrumented, tmp_path: Path) -> None:
    source = tmp_path / "race.c"
    source.write_text(RACE)
    ended = raced(instrumented.compile(source, tmp_path / "race"))
    assert ended.returncode == FOUND
    assert "data race" in ended.stderr


@pytest.mark.tsan
def test_the_library_is_instrumented(instrumented: Instrumented) -> None:
    """Its own code calls ThreadSanitizer; without that, the tests above would see the C programs only."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm (on Debian: binutils)")
    listed = subprocess.run(
        ["nm", "--undefined-only", instrumented.library], capture_output=True, text=True, check=False
    ).stdout
    assert {"__tsan_read8", "__tsan_write8", "__tsan_atomic64_compare_exchange_val"} <= set(listed.split())
