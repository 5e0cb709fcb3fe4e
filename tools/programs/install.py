"""Install foreign tools for the tests below ``.tools``: ``python tools/programs/install.py NAME... [--all]``.

What is there already, of the same version, is left as it is. A tool that cannot be had leaves ``NAME.missing`` with one
line that says why; its tests are skipped with that line, and the others go on.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

# A script has its own folder on the path, not the repository's.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.programs import builders
from tools.programs.workshop import BIN, HERE, SCRATCH, TOOLS, MissingError, Pin, pins, result


def main() -> int:
    """Install what is named and what that needs; return how many cannot be had."""
    known = pins()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    parser.add_argument("--all", action="store_true", help="install each that is not `by_name`")
    parser.add_argument("--keep-cache", action="store_true", help="keep what was only needed for building")
    options = parser.parse_args()
    names = [name for name, pin in known.items() if not pin.get("by_name")] if options.all else options.names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    BIN.mkdir(parents=True, exist_ok=True)
    # Another one at the same time would have its scratch files removed by the first that ends.
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        SCRATCH.mkdir(exist_ok=True)
        try:
            return sum(not install(name, known) for name in names)
        finally:
            if not options.keep_cache:
                shutil.rmtree(SCRATCH, ignore_errors=True)


def install(name: str, known: dict[str, Pin]) -> bool:
    """Install one tool, after what it needs; say how long it took, or what is missing."""
    pin = known[name]
    wanted, stamp, missing = fingerprint(pin), TOOLS / f"{name}.stamp", TOOLS / f"{name}.missing"
    lacking = [needed for needed in pin.get("needs", []) if not install(needed, known)]
    current = stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and result(name, pin).exists()
    if current and not lacking:
        return True
    begun = time.monotonic()
    try:
        if lacking:
            raise MissingError(f"it needs {', '.join(lacking)}")
        builders.WAYS[pin["by"]](name, pin)
    except MissingError as error:
        missing.write_text(f"{error}\n", encoding="utf-8")
        sys.stderr.write(f"{name}: missing: {error}\n")
        return False
    stamp.write_text(wanted, encoding="utf-8")
    missing.unlink(missing_ok=True)
    sys.stdout.write(f"{name}: {time.monotonic() - begun:.0f} s\n")
    sys.stdout.flush()
    return True


def fingerprint(pin: Pin) -> str:
    """Return what changes when a pin does, or a file that it names, or one beside that in a folder of its own."""
    read: list[Path] = []
    if "file" in pin:
        file = HERE / pin["file"]
        read = [file] if file.parent == HERE else sorted(file.parent.iterdir())
    return hashlib.sha256(json.dumps(pin, sort_keys=True).encode() + b"".join(map(Path.read_bytes, read))).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
