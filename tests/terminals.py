"""Terminals for the programs that tests start: a pseudo-terminal, and everything that a person would see on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from types import TracebackType
from typing import Final

from tests.support import wait_until

SGR: Final = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal of a width; nothing reads it until ``read`` is called."""

    def __init__(self, columns: int = 120) -> None:
        """Open it; ``file`` is what a program writes to."""
        self._screen, self.file = pty.openpty()
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def read(self) -> None:
        """Show from now on what is written."""
        self._reader.start()

    def close(self) -> None:
        """Close the screen, as if the window were closed."""
        if self._reader.ident is None and self._screen >= 0:
            os.close(self._screen)
            self._screen = -1

    def raw(self) -> str:
        """Return what was written so far, with its colours; line ends are those of the program."""
        return bytes(self._shown).decode().replace("\r\n", "\n")

    def text(self) -> str:
        """Return what was written so far, without colours."""
        return SGR.sub("", self.raw())

    def lines(self) -> list[str]:
        """Return the whole lines so far, without colours."""
        return self.text().split("\n")[:-1]

    def wait_for(self, text: str) -> str:
        """Wait until ``text`` is shown; return all that is shown then."""
        wait_until(lambda: text in self.text(), f"{text!r} on the terminal: {self.raw()[-2000:]}")
        return self.text()

    def _read(self) -> None:
        try:
            while block := os.read(self._screen, 1 << 16):
                self._shown += block
        except OSError:
            pass  # how a terminal says that nobody writes to it any more
        os.close(self._screen)
