"""Note which packages a test asks for that are not here, in each of its processes.

``LACKING`` has the names of modules with commas between them, ``LACKING_NOTES`` the file that each import of one is
noted in. Imported where an interpreter starts: by a line of a .pth file. It changes no import.
"""

from __future__ import annotations

# Each process of the tests begins with this: no more is imported than an interpreter has at its start.
import os
import sys

MODULES = frozenset(filter(None, os.environ.get("LACKING", "").split(",")))


class Notes:
    """A finder of modules that finds none and notes who is looked for."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Note a module that is not here."""
        notes = os.environ.get("LACKING_NOTES")
        if notes and name.partition(".")[0] in MODULES:
            with open(notes, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(f"{name.partition('.')[0]}\n")


if MODULES:
    sys.meta_path.insert(0, Notes)
