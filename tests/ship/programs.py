"""Real servers of others as processes: started, killed and started again with the same ports and the same data."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.support import wait_until


class Program:
    """A process that is ready once ``is_ready`` says so; what it says goes to ``log``."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kills = 0
        self._command, self._log, self._is_ready, self._environment = command, log, is_ready, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with what an earlier life left, and wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        wait_until(self._look, f"{Path(self._command[0]).name} to be ready")

    def _look(self) -> bool:
        assert self.is_running(), f"it ended: {self.said()[-2000:]}"
        return self._is_ready()

    def is_running(self) -> bool:
        """Say whether it is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.is_running(), f"it ended: {self.said()[-2000:]}"
        self.kills += 1
        self.end()

    def restart(self) -> None:
        """Kill it and start the next one."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it do nothing until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End it by SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def said(self) -> str:
        """Return what it has said in all its lives."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""


def installed(command: str, package: str) -> Path:
    """Return the path of a program of Debian's, or skip the test."""
    path = shutil.which(command)
    if path is None:
        pytest.skip(f"missing: {command} (on Debian: apt-get install {package})")
    return Path(path)


def listens(port: int) -> bool:
    """Say whether somebody takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def certificate(directory: Path) -> tuple[Path, Path]:
    """Make a key and a certificate that is its own authority, for localhost; return both paths."""
    key, made = directory / "key.pem", directory / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    wanted: list[str | Path] = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        *subject,
        "-keyout",
        key,
        "-out",
        made,
    ]
    subprocess.run([installed("openssl", "openssl"), *wanted], check=True, capture_output=True)
    return key, made


def scraped(port: int, name: str, path: str = "/metrics", **labels: str) -> float:
    """Return the sum of those samples of a metric, at ``path`` of a port, that have these labels; 0 without any."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=180) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())
