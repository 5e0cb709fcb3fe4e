"""The jars of a Java program, by Maven."""

from __future__ import annotations

from tools.programs.workshop import HERE, SCRATCH, Pin, replacing, result, run


def build(name: str, pin: Pin) -> None:
    """Copy all jars that the program runs with."""
    with replacing(result(name, pin)) as libraries:
        run(
            "mvn",
            "-q",
            "-B",
            "-ntp",
            f"-Dmaven.repo.local={SCRATCH / 'maven'}",
            f"-f={HERE / pin['file']}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libraries}",
            "-DincludeScope=runtime",
        )
