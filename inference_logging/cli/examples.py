"""The examples below each `--help`. They have one form, so that a test finds and runs every one."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the epilog of a command: verbatim command lines, each runnable in a shell."""
    # click leaves a paragraph that begins with a backspace unwrapped.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
