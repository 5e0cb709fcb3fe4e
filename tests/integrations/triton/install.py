"""Set up a virtual environment with a real Triton for the CPU: ``python install.py DIRECTORY``.

The wheel of nvidia-pytriton holds the whole server and a stub of the Python backend for each version of Python; nothing
else of that package is used. Where this machine cannot run it, the file ``missing`` in DIRECTORY says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

SERVER = "nvidia-pytriton==0.7.0"
LOCK = Path(__file__).resolve().parents[3] / "release" / "locks" / "triton.txt"
NEWEST = (3, 12)
"""The Python backend cannot do with numpy 2, and later versions of Python have no other."""


def main(directory: Path) -> None:
    """Install, and look whether the stub finds its libraries: where it does not, the server would wait for ever."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
    if sys.version_info[:2] > NEWEST:
        return missing(directory, f"Python {NEWEST[0]}.{NEWEST[1]} or older, for numpy 1")
    pip: list[str | Path] = [directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", SERVER], check=True)
    subprocess.run([*pip, "--require-hashes", "--requirement", LOCK], check=True)
    (server,) = directory.glob("lib/python3*/site-packages/pytriton/tritonserver")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "backends" / "python" / "triton_python_backend_stub"
    stub.unlink(missing_ok=True)
    stub.symlink_to(f"../../python_backend_stubs/{version}/triton_python_backend_stub")
    libraries = os.pathsep.join(filter(None, [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]))
    lacking: list[str] = []
    for attempt in range(2):
        needed = subprocess.run(
            ["ldd", stub], check=False, capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": libraries}
        ).stdout
        lacking = [line.split()[0] for line in needed.splitlines() if "not found" in line]
        if not lacking:
            return None
        if attempt == 0 and os.geteuid() == 0:
            subprocess.run(
                ["apt-get", "install", "-qq", "-y", f"libpython{version}"], check=False, stdout=subprocess.DEVNULL
            )
    return missing(directory, f"{', '.join(lacking)} (on Debian: sudo apt-get install libpython{version})")


def missing(directory: Path, what: str) -> None:
    """Say what is missing, here and to the tests."""
    (directory / "missing").write_text(f"{what}\n", encoding="utf-8")
    sys.stderr.write(f"missing: {what}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
