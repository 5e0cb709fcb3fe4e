"""A Rust program that installs as it is, with the versions of its own lock file: ``cargo install --locked``."""

from __future__ import annotations

from tools.programs.workshop import SCRATCH, TOOLS, Pin, run


def build(name: str, pin: Pin) -> None:
    """Install the program, which has the name of its package."""
    package = f"{pin['package']}@{pin['version']}"
    place = {"CARGO_TARGET_DIR": str(SCRATCH / "cargo"), "CARGO_INSTALL_ROOT": str(TOOLS)}
    run("cargo", "install", "--quiet", "--locked", "--force", package, environment=place)
