"""The C library for small machines: its size, its memory, and queues of other processors that are read on this machine.

Programs for other processors run under qemu; what they leave is recovered by this machine's listener.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from inference_logging import Config
from tests.books import assert_books_balance
from tests.c_programs import LIBRARY, SOURCES, STRICT_C, compiled, install
from tests.c_programs import run as run_program
from tests.command_line import run
from tests.identity import SECRET, everything, keyed_hash
from tests.sidecars import Sidecar
from tests.support import read_records

pytestmark = pytest.mark.embedded

Configure = Callable[..., Config]
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


def test_a_wrong_parameter_is_named_as_everywhere(program: list[str], small: tuple[Config, Path]) -> None:
    _, file = small
    wrong = "sensors: 7\nredact_custom: a+\nrotate_bytes: much\n"
    lines = file.read_text().replace("queue_bytes: 64KiB", "queue_bytes: 5")
    named = [line.split(":")[0] for line in refused(program, file, lines + wrong)]
    assert sorted(named) == ["queue_bytes=5 (file)", 'redact_custom="a+" (file)', "sensors (file)"]


def test_a_file_of_json_is_refused_with_what_it_must_be(program: list[str], small: tuple[Config, Path]) -> None:
    _, file = small
    (said,) = refused(program, file, json.dumps({"version": 1}))
    assert said == f"config_file='{file}': must be lines of a name, a colon, a space and a value"


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
