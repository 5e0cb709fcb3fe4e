"""Keeps what the benchmarks found, and writes the figures of the pages from it: none of them is typed by hand.

    python -m loadtests.results --keep NAME FILE [--keep …] [--update docs/figures.md …]

A command's result is a part of `loadtests/results/DATE-MACHINE.json`, under the command's name, with the day, the
machine, the command and the versions that it was found with. A part that is measured again on that day and machine
takes the old one's place. `--update` writes what stands between two marks in a page, of each part the newest: all
figures in `docs/figures.md`, a few in the README. Figures of a quick run are refused.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

from inference_logging.prove.bench.machine import machine
from inference_logging.prove.bench.result import Result
from loadtests.cost.bench_peers import goals
from loadtests.results_text import Part, block, comparison, cost

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = Path(__file__).resolve().parent / "results"
BEGIN: Final = "<!-- begin: results, written by `python -m loadtests.results --update docs/figures.md` -->"
END: Final = "<!-- end: results -->"
BEGIN_COST: Final = "<!-- begin: cost, written by `python -m loadtests.results --update README.md` -->"
END_COST: Final = "<!-- end: cost -->"
BEGIN_PEERS: Final = "<!-- begin: peers, written by `python -m loadtests.results --update docs/comparison.md` -->"
END_PEERS: Final = "<!-- end: peers -->"
SCHEMA: Final = 1
_PACKAGES: Final = (
    "inferlog", "fapilog", "fastapi", "httptools", "loguru", "opentelemetry-sdk", "orjson", "parsl", "picologging",
    "starlette", "structlog", "uvicorn", "uvloop", "vllm",
)  # fmt: skip
_OF_A_CPU: Final = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*", re.IGNORECASE)


def keep(name: str, result: Mapping[str, Any], directory: Path = RESULTS) -> Path:
    """Keep a result, which names its command, as the part ``name`` of today's file for this machine; return the file.

    ``peers``, which `inference-logging bench` found, is kept with our goals and their verdicts.
    Raises ``ValueError`` if it is the result of a quick run.
    """
    if result.get("quick"):
        raise ValueError(f"{name}: quick=true: the figures of a quick run mean nothing, and are not kept")
    now, place = datetime.now(timezone.utc), machine()
    own = {"goals": goals(cast("Result", result))} if name == "peers" and "goals" not in result else {}
    path = directory / f"{now:%Y-%m-%d}-{slug(place['cpu'])}.json"
    empty: dict[str, Any] = {"schema": SCHEMA, "parts": {}}
    file = json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty
    file["parts"][name] = {
        "made": now.isoformat(timespec="seconds"),
        "command": result["command"],
        "machine": {key: place[key] for key in ("cpu", "cores", "memory_gib", "kernel", "python")},
        "revision": _revision(),
        "versions": _versions(),
        "result": dict(result) | own,
    }
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(file, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def slug(cpu: str) -> str:
    """Return a processor's name as a part of a file's: ``AMD EPYC 7B13 64-Core Processor`` → amd-epyc-7b13."""
    words = re.findall(r"[a-z0-9]+", _OF_A_CPU.sub(" ", cpu).lower())
    return "-".join(words) or "machine"


def newest(directory: Path = RESULTS) -> dict[str, Part]:
    """Return of each part the newest; raises ``ValueError`` for a file of another schema."""
    found: dict[str, Part] = {}
    for path in sorted(directory.glob("*.json")):
        file = json.loads(path.read_text(encoding="utf-8"))
        if file["schema"] != SCHEMA:
            raise ValueError(f"{path}: schema={file['schema']}: this version reads {SCHEMA}")
        for name, part in file["parts"].items():
            if name not in found or found[name].made <= part["made"]:
                found[name] = Part(name, path.stem, part["made"], part["machine"], part["command"], part["result"])
    return found


def updated(text: str, parts: Mapping[str, Part]) -> str:
    """Return a page with the figures of ``parts`` between its marks; raises ``ValueError`` if it has none."""
    kinds = ((BEGIN, END, block), (BEGIN_COST, END_COST, cost), (BEGIN_PEERS, END_PEERS, comparison))
    present = [(begin, end, write) for begin, end, write in kinds if begin in text and end in text.partition(begin)[2]]
    if not present:
        raise ValueError(f"the marks are missing: {', or '.join(f'{begin} … {end}' for begin, end, _ in kinds)}")
    for begin, end, write in present:
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{write(parts)}\n\n{end}{rest.partition(end)[2]}"
    return text


def _versions() -> dict[str, str]:
    installed = {found.metadata["Name"].lower(): found.version for found in metadata.distributions()}
    return {name: installed[name] for name in _PACKAGES if name in installed}


def _revision() -> str | None:
    """Return the commit that was measured, with a mark if files differ from it; None outside of a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> None:
    """Keep and update as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep", nargs=2, action="append", default=[], metavar=("NAME", "FILE"), help="keep the result in FILE as NAME"
    )
    parser.add_argument(
        "--update", type=Path, action="append", default=[], metavar="FILE", help="write the figures between its marks"
    )
    parser.add_argument("--directory", type=Path, default=RESULTS, help="loadtests/results unless given")
    options = parser.parse_args()
    try:
        for name, file in options.keep:
            kept = keep(name, json.loads(Path(file).read_text(encoding="utf-8")), options.directory)
            print(f"kept {name} in {kept}")
        if options.update:
            parts = newest(options.directory)
            if not parts:
                raise ValueError(f"--directory={options.directory}: no results are kept there")
            for page in options.update:
                page.write_text(updated(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
                print(f"wrote the figures of {', '.join(sorted(parts))} into {page}")
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"results: {error}")


if __name__ == "__main__":
    main()
