"""A real journald of its own, for a namespace that only the test has."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.shipping.programs import Program, installed
from tests.support import parse

_JOURNALD: Final = "/lib/systemd/systemd-journald"
# docs/syslog.md names it.
CONFIGURATION: Final = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n"


class Journald(Program):
    """journald for a namespace; it needs root, and leaves nothing behind."""

    def __init__(self, directory: Path) -> None:
        path = installed(_JOURNALD, "systemd")
        if os.geteuid() != 0:
            pytest.skip("only root can run a journald")
        directory.mkdir()
        namespace, machine = f"test{os.getpid()}", Path("/etc/machine-id").read_text("utf-8").strip()
        run, settings = (
            Path(f"/run/systemd/{name}") for name in (f"journal.{namespace}", f"journald@{namespace}.conf.d")
        )
        self._directory = Path(f"/run/log/journal/{machine}.{namespace}")
        self._own, self.socket = (run, settings, self._directory), run / "socket"
        settings.mkdir(parents=True)
        (settings / "test.conf").write_text(CONFIGURATION, "utf-8")
        super().__init__([path, namespace], directory / "log", self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connected:
            connected.connect(str(self.socket))
            return True
        return False

    def remove(self) -> None:
        """Remove what it has made."""
        for path in self._own:
            shutil.rmtree(path, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where to ship to."""
        return f"journald://{self.socket}"

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries that it has, without its own."""
        return [entry for entry in read(self._directory) if "INFERENCE_LOGGING_RECORD" in entry]


def read(directory: Path) -> list[dict[str, Any]]:
    """Return the entries of the journals in a directory, as journalctl reads them."""
    path = installed("journalctl", "systemd")
    command: list[str | Path] = [path, f"--directory={directory}", "--output=json", "--all", "--no-pager"]
    done = subprocess.run(command, check=True, capture_output=True)
    return [parse(line) for line in done.stdout.splitlines()]


def text(value: Any) -> str:
    """Return the text of a field: one with control characters is a list of bytes in journalctl's JSON."""
    return bytes(value).decode() if isinstance(value, list) else str(value)
