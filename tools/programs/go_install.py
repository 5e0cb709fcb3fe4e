"""A Go program that installs as it is: ``go install PACKAGE@VERSION``."""

from __future__ import annotations

from tools.programs.workshop import Pin, go, go_flags


def build(name: str, pin: Pin) -> None:
    """Install the program; it is named as the last part of its package."""
    go("install", *go_flags(pin), f"{pin['package']}@{pin['version']}")
