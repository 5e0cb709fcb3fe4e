"""The examples below each `--help`: one place for their form, so that a test finds and runs every one."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the epilog of a command: command lines, as they stand, each runnable in a shell."""
    # click takes a paragraph that begins with a backspace as it stands, without wrapping it.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
