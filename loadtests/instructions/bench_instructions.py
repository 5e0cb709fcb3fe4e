"""How many instructions the request path executes, counted by callgrind: no neighbour on the machine moves them.

Each figure is per unit (request, chunk, call, record), minus the same work without logging. Above its bound in
``instruction_bounds.json``, a count of the native module's instructions by more than 2 %, or of all by more than 5 %,
fails the command; ``--update`` notes them anew. The interpreter caches methods by the addresses of objects, so one and
the same module differs by up to 3 % in all, and by nothing natively. With another interpreter than the noted one only
the native module's own instructions are judged, and none on another architecture. ``--profile ROW`` prints the
functions of the native module; ``--wheel FILE`` counts what a wheel holds beside the checkout's module.
loadtests/README.md says more.

callgrind's files are those of ``--dump-instr=yes``. A *code line* is 64 bytes, found by the address at which an
instruction begins; an instruction counts as executed where it ran at least every other time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadtests.harness import scratch_directory

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
BOUNDS: Final = HERE / "instruction_bounds.json"
NATIVE: Final = "inference_logging/_native"
MAIN_THREAD: Final = 1
ONLY_NATIVE: Final = "fastapi"
"""The row whose instructions in all are not judged. There, two counts of 280,000 are subtracted, each of which differs
by 0.2 %: the difference moves by 7 %."""
LEAST: Final = 0.5
"""Instructions per unit that a count may differ by whatever its size."""

ROWS: Final = {
    "get": "GET, bare ASGI, per request",
    "thinnest_get": "the same GET, thinnest wrapper",
    "fastapi": "GET, FastAPI, per request",
    "post": "POST, JSON completion with usage, per request",
    "thinnest_post": "the same POST, thinnest wrapper",
    "traceparent": "GET with a traceparent, per request",
    "sets": "GET whose application sets two fields, per request",
    "identity": "GET with three recorded headers, per request",
    "chunk": "stream, per chunk",
    "thinnest_chunk": "the same stream, thinnest wrapper, per chunk",
    "chunk_chat": "stream of a chat, per chunk of 200 bytes",
    "chunk_mixed": "stream of two kinds of events in turn, per chunk",
    "emit": "emit, ten fields",
    "logger": "get_logger().info, ten fields",
    "native": "install_logger().info, ten extras",
    "handler": "logging.Handler, no extra",
    "handler_extra": "logging.Handler, ten extras",
    "triton": "Triton, batch of 8, per request",
    "listener": "listener, per request record",
}
THINNEST: Final = {"get": "thinnest_get", "post": "thinnest_post", "chunk": "thinnest_chunk"}
"""Rows that serve the same, behind the thinnest wrapper."""
TOGETHER: Final = (
    ("get", "post", "traceparent", "chunk", "chunk_chat", "chunk_mixed", "emit", "logger"),
    ("handler", "handler_extra", "native"),
    ("fastapi", "triton"),
    ("thinnest_get", "thinnest_post", "thinnest_chunk"),
    ("listener",),
    ("sets",),
    ("identity",),
)
"""Rows that one process counts, in turn; two processes at once."""
ALL_THREADS: Final = ("listener",)
"""Rows whose work other threads do. Of the rest the main thread is counted: other threads work by the clock there."""

VALGRIND: Final = (
    *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
    *("--dump-instr=yes", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"),
)
DESCRIBE: Final = """
import platform, sysconfig
optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
debian = "deb_system" in sysconfig.get_scheme_names()
build = "Debian's build, with PGO" if debian else "built with PGO" if optimized else "built without PGO"
print(platform.python_implementation(), platform.python_version() + ",", build)
"""

Figures = Mapping[str, float]

LINE_BITS: Final = 6
TRIGGER: Final = "desc: Trigger: Client Request: "

Place = tuple[str, str, int]
"""Object, function, address within the object."""


@dataclass
class Part:
    """The counts of one function, or of all that are asked for: per unit of work, and what of the code was executed."""

    instructions: float = 0
    lines: set[int] = field(default_factory=set)

    def add(self, address: int, executions: float) -> None:
        """Add one instruction."""
        self.instructions += executions
        if executions >= 0.5:
            self.lines.add(address >> LINE_BITS)


class Counts:
    """Executions by place; sums, differences and shares of them are taken place by place."""

    def __init__(self) -> None:
        self.places: defaultdict[Place, float] = defaultdict(float)

    def add(self, other: Counts, weight: float = 1) -> None:
        """Add ``weight`` times ``other``."""
        for place, executions in other.places.items():
            self.places[place] += weight * executions

    def total(self, object_name: str = "") -> Part:
        """Return the counts of the objects whose name contains ``object_name``."""
        whole = Part()
        for part in self.functions(object_name).values():
            whole.instructions += part.instructions
            whole.lines.update(part.lines)
        return whole

    def functions(self, object_name: str) -> Mapping[str, Part]:
        """Return the counts of each function of these objects."""
        found: defaultdict[str, Part] = defaultdict(Part)
        for (name, function, address), executions in self.places.items():
            if object_name in name:
                found[function].add(address, executions)
        return found


class Dump(NamedTuple):
    """The counts of one thread between two marks, and the name that the second mark gave them."""

    name: str
    thread: int
    counts: Counts


def read(lines: Iterable[str]) -> Dump:
    """Read one file of callgrind's."""
    counts, trigger, thread = Counts(), "", 1
    names = {"ob": "", "fn": ""}
    rest: Iterator[str] = iter(lines)
    for line in rest:
        if line.startswith("0x"):
            address, executions = line.split()[:2]
            counts.places[names["ob"], names["fn"], int(address, 16)] += int(executions)
        elif line.startswith("calls="):
            next(rest)  # what the called function cost, which is counted there
        elif line.startswith(("ob=", "fn=")):
            names[line[:2]] = line[3:].rstrip("\n")
        elif line.startswith(TRIGGER):
            trigger = line.removeprefix(TRIGGER).rstrip("\n")
        elif line.startswith("thread:"):
            thread = int(line.split()[1])
    return Dump(trigger, thread, counts)


class Figure(NamedTuple):
    """One column of the table."""

    key: str
    title: str
    is_native: bool = True
    tolerance: float | None = None
    """By which share of its bound it may be above it; None: it is not judged."""


FIGURES: Final = (
    Figure("instructions", "instructions", is_native=False, tolerance=0.05),
    Figure("native_instructions", "native instructions", tolerance=0.02),
    Figure("code_lines", "native code lines"),
)


class Toolchain(NamedTuple):
    """What the figures hold for."""

    machine: str
    interpreter: str
    compiler: str


class Interpreter(NamedTuple):
    """A Python that can load what the virtual environment has."""

    path: str
    description: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, compare and print; return 1 if a judged figure is above its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="note the figures as the new bounds")
    parser.add_argument("--profile", choices=ROWS, metavar="ROW", help=f"functions of one row: {', '.join(ROWS)}")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="count what this wheel holds, beside the checkout's")
    options = parser.parse_args(arguments)
    interpreter = find_interpreter()
    here = Toolchain(platform.machine(), interpreter.description, _compiler())
    print(f"{here.interpreter}; module built with {here.compiler}; {here.machine}")
    if options.profile:
        (counts,) = count(interpreter, [options.profile]).values()
        print_profile(counts)
        return 0
    found = {name: _figures(counts) for name, counts in count_all(interpreter).items()}
    if options.wheel:
        with tempfile.TemporaryDirectory() as package:
            zipfile.ZipFile(options.wheel).extractall(package)
            of_wheel = count_all(interpreter, Path(package))
        print(f"{options.wheel.name}, the checkout's module, and their ratio:")
        print_table({name: _figures(counts) for name, counts in of_wheel.items()}, found)
        return 0
    if options.update:
        write_bounds(here, found)
    noted, bounds = read_bounds()
    judged = judged_figures(here, noted)
    print_table(found, bounds)
    for ours, thinnest in THINNEST.items():
        ratio = found[ours]["instructions"] / found[thinnest]["instructions"]
        print(f"{ROWS[ours]}: {ratio:.2f} times the instructions of the thinnest wrapper")
    above = list(exceeded(found, bounds, judged))
    print("\n".join(above) or "no judged figure is too far above its bound")
    return 1 if above else 0


def count_all(interpreter: Interpreter, package: Path = ROOT) -> dict[str, Counts]:
    """Return the counts of each row per unit; the package is the one in ``package``."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda names: count(interpreter, names, package), TOGETHER))
    return {name: next(part[name] for part in found if name in part) for name in ROWS}


def count(interpreter: Interpreter, names: Sequence[str], package: Path = ROOT) -> dict[str, Counts]:
    """Count these rows in one process."""
    with scratch_directory() as directory:
        marks = directory / "marks.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", marks, HERE / "callgrind_marks.c"], check=True)
        separate = "no" if set(names) <= set(ALL_THREADS) else "yes"
        into = (f"--callgrind-out-file={directory / 'counts'}", f"--separate-threads={separate}")
        ended = subprocess.run(
            [*VALGRIND, *into, interpreter.path, HERE / "instruction_rows.py", "count", marks, *names],
            env=_environment(directory, package),
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"the rows {', '.join(names)} failed:\n{ended.stderr}")
        rows: dict[str, dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
        dumps = _dumps(directory)
    return {name: _combined(name, row, dumps) for name, row in rows.items()}


def _dumps(directory: Path) -> dict[str, Counts]:
    found: defaultdict[str, Counts] = defaultdict(Counts)
    for path in directory.glob("counts.*"):
        with path.open(encoding="utf-8") as lines:
            dump = read(lines)
        if dump.thread == MAIN_THREAD:
            found[dump.name].add(dump.counts)
    return found


def _combined(name: str, row: Mapping[str, Any], dumps: Mapping[str, Counts]) -> Counts:
    counts = Counts()
    for position, weight in enumerate(row["weights"]):
        counts.add(dumps[f"{name}/{position}"], weight / row["units"])
    return counts


def _figures(counts: Counts) -> dict[str, float]:
    native = counts.total(NATIVE)
    return {
        "instructions": counts.total().instructions,
        "native_instructions": native.instructions,
        "code_lines": len(native.lines),
    }


def find_interpreter() -> Interpreter:
    """Return Debian's or the official image's Python of this minor version, else the one that runs this."""
    name = "python{}.{}".format(*sys.version_info)
    for path in (f"/usr/bin/{name}", f"/usr/local/bin/{name}", sys.executable):
        if Path(path).exists():
            said = subprocess.run([path, "-I", "-c", DESCRIBE], check=True, capture_output=True, text=True).stdout
            if path == sys.executable or "without" not in said:
                return Interpreter(path, said.strip())
    raise RuntimeError("this interpreter does not know its own path")


def _environment(directory: Path, package: Path) -> dict[str, str]:
    # Nothing of the caller's but the way to programs: a variable more moves the stack.
    return {
        "PATH": os.environ["PATH"],
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([str(package), sysconfig.get_path("platlib"), str(ROOT)]),
        "PYTHONNOUSERSITE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **settings(directory),
    }


def settings(directory: Path) -> dict[str, str]:
    """Return the variables of a process whose records nobody takes from its queue."""
    return {
        "INFERENCE_LOGGING_DIRECTORY": str(directory / "segments"),
        "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(directory / "queues"),
        "INFERENCE_LOGGING_LISTENER": "external",
        "INFERENCE_LOGGING_DRAIN_DEADLINE_S": "0",
        # Not one of the records that are counted.
        "INFERENCE_LOGGING_SERVER_RECORD": "off",
    }


def _compiler() -> str:
    try:
        said = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "an unknown rustc"
    return " ".join(said.split()[:2])


def read_bounds(path: Path = BOUNDS) -> tuple[Toolchain, dict[str, Figures]]:
    """Return the noted figures, and what they were counted with."""
    noted = json.loads(path.read_text(encoding="utf-8"))
    return Toolchain(**noted["toolchain"]), noted["rows"]


def write_bounds(here: Toolchain, found: Mapping[str, Figures], path: Path = BOUNDS) -> None:
    """Note the figures as the new bounds."""
    rows = {name: {key: round(value) for key, value in row.items()} for name, row in found.items()}
    noted = {"toolchain": here._asdict(), "rows": rows}
    path.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def judged_figures(here: Toolchain, noted: Toolchain) -> list[Figure]:
    """Return which figures can be compared with the noted ones, and print why others can't."""
    judged = [figure for figure in FIGURES if figure.tolerance is not None]
    if here.machine != noted.machine:
        print(f"the bounds are those of {noted.machine}: nothing is judged")
        return []
    if here.compiler != noted.compiler:
        print(f"the bounds were noted with {noted.compiler}, which may be the difference")
    if here.interpreter != noted.interpreter:
        print(f"the bounds were noted with {noted.interpreter}: only native instructions are judged")
        return [figure for figure in judged if figure.is_native]
    return judged


def exceeded(found: Mapping[str, Figures], bounds: Mapping[str, Figures], judged: Sequence[Figure]) -> Iterator[str]:
    """Yield a sentence for each judged figure that is too far above its bound, or has none."""
    for name, row in found.items():
        for figure in judged:
            share = tolerance(name, figure)
            value, bound = row[figure.key], bounds.get(name, {}).get(figure.key)
            if share is None:
                continue
            if bound is None:
                yield f"{ROWS[name]}: {figure.title} have no bound; --update notes it"
            elif value > max(bound * (1 + share), bound + LEAST):
                over = f"{value / bound - 1:+.1%}" if bound > 0 else f"{value - bound:+.1f}"
                yield f"{ROWS[name]}: {value:,.1f} {figure.title} are {over} above the bound of {bound:,}"


def tolerance(name: str, figure: Figure) -> float | None:
    """Return by which share of its bound a figure of this row may be above it; None: it is not judged."""
    return figure.tolerance if figure.is_native or name != ONLY_NATIVE else None


def print_table(found: Mapping[str, Figures], bounds: Mapping[str, Figures]) -> None:
    """Print each figure beside its bound."""
    for name, row in found.items():
        print(f"\n{ROWS[name]}")
        for figure in FIGURES:
            value, bound = row[figure.key], bounds.get(name, {}).get(figure.key)
            ratio = f"{value / bound:8.3f}" if bound else f"{'-':>8}"
            noted = f"{'-':>12}" if bound is None else f"{bound:12,}"
            judged = "" if tolerance(name, figure) is not None else "  not judged"
            print(f"  {figure.title:<20} {value:12,.0f} {noted} {ratio}{judged}")
    print()


def print_profile(counts: Counts, limit: int = 60) -> None:
    """Print the functions of the native module: those with the most code lines first."""
    whole, functions = counts.total(NATIVE), counts.functions(NATIVE)
    print(f"{'lines':>6} {'instructions':>13}")
    ordered = sorted(functions.items(), key=lambda item: (-len(item[1].lines), -item[1].instructions))
    for name, part in [("all", whole), *ordered[:limit]]:
        print(f"{len(part.lines):6} {part.instructions:13.1f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
