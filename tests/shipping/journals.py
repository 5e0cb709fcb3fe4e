"""Real journals: systemd-journal-remote, and a journald of its own for a namespace that only the test has."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import free_port
from tests.shipping.programs import Program, certificate, installed, listens
from tests.support import parse

_PROGRAMS: Final = Path("/lib/systemd")
# docs/syslog.md names it.
CONFIGURATION: Final = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n"


class JournalRemote(Program):
    """The server, by TLS or without; its journal is in ``directory``."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        path = installed(str(_PROGRAMS / "systemd-journal-remote"), "systemd-journal-remote")
        directory.mkdir()
        self._directory, self._port, self._tls = directory / "journal", free_port(), tls
        self._directory.mkdir()
        self.key, self.certificate = certificate(directory)
        listen: list[str | Path] = [f"--listen-http={self._port}"]
        if tls:
            listen = [f"--listen-https={self._port}", f"--key={self.key}", f"--cert={self.certificate}"]
        output = [f"--output={self._directory / 'remote.journal'}", "--split-mode=none"]
        super().__init__([path, *listen, *output], directory / "log", lambda: listens(self._port))

    def url(self, host: str = "localhost") -> str:
        """Return where to ship to."""
        return f"journal+{'https' if self._tls else 'http'}://{host}:{self._port}"

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries that it has."""
        return read(self._directory)


class Journald(Program):
    """journald for a namespace; it needs root, and leaves nothing behind."""

    def __init__(self, directory: Path) -> None:
        path = installed(str(_PROGRAMS / "systemd-journald"), "systemd")
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
