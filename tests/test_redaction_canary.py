"""Marked secrets go in by every way, and come out by none: no segment, socket, stream, page or message has one.

Each test runs twice. Without redaction the secrets must be found, which shows that the test looks where they would be;
with it there must be none. What a queue holds until it is written is not looked at: it is raw, and its user's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_logging.record.config import ENV_PREFIX, Config
from tests.support import read_lines, read_records

pytestmark = pytest.mark.servers

APP = Path(__file__).with_name("canary_app.py")
DEADLINE_S = 120.0

REDACTION = {
    "redact_patterns": "email, phone, card, key, bearer",
    "redact_fields": "password, $.attributes.session",
    "redact_custom": "canary=Canary[0-9]+Error",
}
CAPTURE = {"capture_input": "full", "capture_output": "full"}
_SECRET = re.compile(rb"(?i)canary\w*?(\d\d)|(4111.?1111.?1111.?1111)")

IN_HEADS = {1, 2, 4, 30}
IN_BODIES = {6, 8, 34}
IN_LOGS = {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 26, 33, 37, 39}
IN_MESSAGES = {7, 9, 35}
IN_EXCEPTIONS = {10, 11, 41}
CARD = {0}
IN_AUDIT = {25, 40}
IN_LABELS = {6, 11}


def secrets(text: bytes) -> set[int]:
    """Return the numbers of the secrets in a text; 0 is the card."""
    return {int(found[1] or 0) for found in _SECRET.finditer(text)}


class Reader(threading.Thread):
    """Keeps what arrives at a socket until it is asked to stop."""

    def __init__(self, receiving: socket.socket) -> None:
        super().__init__(daemon=True)
        self._socket, self.received = receiving, bytearray()
        self._must_stop = threading.Event()
        self.start()

    def run(self) -> None:
        """Read on; what arrived before the stop is read to its end."""
        stops = False
        self._socket.settimeout(0.05)
        while not stops:
            stops = self._must_stop.is_set()
            with contextlib.suppress(TimeoutError):
                while True:
                    self.received += self._socket.recv(1 << 16)

    def all(self) -> bytes:
        """Return what has arrived."""
        self._must_stop.set()
        self.join()
        return bytes(self.received)


@contextlib.contextmanager
def sockets(directory: Path) -> Iterator[tuple[str, str, list[Reader]]]:
    """Open a UDP and a Unix socket, and read from them."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix,
    ):
        udp.bind(("127.0.0.1", 0))
        path = directory / "socket"
        unix.bind(str(path))
        yield f"udp://127.0.0.1:{udp.getsockname()[1]}", f"unix://{path}", [Reader(udp), Reader(unix)]


class Run:
    """One life of the application, in a directory of its own."""

    def __init__(self, directory: Path, *, redacted: bool) -> None:
        self.directory = directory / ("on" if redacted else "off")
        for name in ("pages", "queues"):
            (self.directory / name).mkdir(parents=True)
        self._parameters = {
            "directory": str(self.directory / "segments"),
            "queue_directory": str(self.directory / "queues"),
            "metrics_path": "/metrics",
            "fallback_delay_s": "0",
            "flush_interval_s": "0.05",
            "drain_deadline_s": "2",
            **{name: value for name, value in CAPTURE.items() if name in Config.model_fields},
            **(REDACTION if redacted else {}),
        }
        self.said = b""

    def live(self, end: str = "", *, writes: str = "all", **parameters: str) -> int:
        """Run the application to its end; return how it ended."""
        self._parameters |= parameters
        own = {"CANARY_PAGES": str(self.directory / "pages"), "CANARY_END": end, "CANARY_WRITES": writes}
        return self._run([sys.executable, str(APP)], **own)

    def recover(self) -> int:
        """Run the command that writes what was left."""
        command = [sys.executable, "-m", "inference_logging.cli.main", "recover", self._parameters["queue_directory"]]
        return self._run(command)

    def read(self) -> None:
        """Run the commands that show what was written; what they say and write is searched too."""
        segments = self._parameters["directory"]
        page = str(self.directory / "pages" / "report.html")
        for arguments in (("tail",), ("stats", segments, "--html", page), ("stats", segments), ("verify", segments)):
            said = len(self.said)
            assert self._run([sys.executable, "-m", "inference_logging.cli.main", *arguments]) == 0, self.said[said:]
            assert len(self.said) > said

    def _run(self, command: list[str], **environment: str) -> int:
        environment |= {ENV_PREFIX + name.upper(): value for name, value in self._parameters.items()}
        done = subprocess.run(
            command, check=False, env={**os.environ, **environment}, capture_output=True, timeout=DEADLINE_S
        )
        self.said += done.stdout + done.stderr
        return done.returncode

    def leaks(self, *, besides: str = "") -> set[int]:
        """Return the secrets in all files but those below ``besides``, and in what was said."""
        found = secrets(self.said)
        for path in self.directory.rglob("*"):
            if path.is_file() and not (besides and path.is_relative_to(self.directory / besides)):
                found |= secrets(path.read_bytes())
        return found


def check(leaks: set[int], *, redacted: bool) -> None:
    """All that is stored without redaction must be gone with it."""
    if redacted:
        assert leaks == set()
    else:
        assert expected() - leaks == set(), "the test does not look where secrets are"


def expected() -> set[int]:
    """Return what is stored without redaction."""
    messages = IN_MESSAGES if set(CAPTURE) <= set(Config.model_fields) else set()
    return IN_HEADS | IN_BODIES | IN_LOGS | IN_EXCEPTIONS | messages | CARD


@pytest.mark.parametrize("audit", ["file", "sqlite"])
def test_no_secret_reaches_a_segment_an_additional_sink_the_audit_lane_a_page_or_a_stream(
    tmp_path: Path, audit: str
) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        with sockets(run.directory) as (udp, unix, readers):
            more = f"{udp}, {unix}, file://{run.directory / 'more'}"
            assert run.live(additional_sinks=more, audit="on", audit_sink=audit) == 0, run.said
            arrived = [secrets(reader.all()) for reader in readers]
        if audit == "file":
            run.read()
        assert len(read_records(run.directory / "more")) == len(read_records(run.directory / "segments")) > 0
        for leaks in (run.leaks() - IN_AUDIT, *arrived):
            check(leaks, redacted=redacted)
        assert run.leaks() & IN_AUDIT == (set() if redacted else IN_AUDIT)
        labels = secrets((run.directory / "pages" / "metrics").read_bytes())
        assert labels == (set() if redacted else IN_LABELS)


def test_no_secret_reaches_the_fallback(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        fallback = run.directory / "fallback"
        assert run.live(sink=f"unix://{run.directory}/nobody", fallback=str(fallback)) == 0, run.said
        assert read_records(fallback, "billed")
        check(run.leaks(), redacted=redacted)


def test_no_secret_reaches_additional_sinks_while_the_primary_takes_nothing(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        run.live(
            sink=f"unix://{run.directory}/nobody", additional_sinks=f"file://{run.directory / 'more'}", writes="some"
        )
        assert read_records(run.directory / "more", "billed")
        check(run.leaks(besides="queues"), redacted=redacted)


def test_no_secret_reaches_standard_output_and_error(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live(sink="stdout") == 0, run.said
        assert b'"billed"' in run.said
        check(run.leaks(), redacted=redacted)


def test_no_secret_reaches_the_console(tmp_path: Path) -> None:
    # The client's own id and bodies are not shown.
    shown = IN_HEADS - {4} | IN_LOGS | IN_EXCEPTIONS | CARD
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live(console="on") == 0, run.said
        assert b" billed " in run.said
        assert secrets(run.said) == (set() if redacted else shown)


def test_no_secret_of_a_process_that_was_killed_is_recovered(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live("kill", listener="external") < 0
        assert not (run.directory / "segments").exists()
        assert run.recover() == 0, run.said
        lines = read_lines(run.directory / "segments")
        (died,) = (line for line in lines if line.get("outcome") == "process_died")
        assert died["url.path"] == ("/hang/[redacted:email]" if redacted else "/hang/canary38@example.com")
        check(run.leaks(), redacted=redacted)


def test_a_record_that_cannot_be_formatted_is_reported_without_what_it_was_to_say(tmp_path: Path) -> None:
    run = Run(tmp_path, redacted=False)
    assert run.live() == 0
    assert b"TypeError" in run.said
    assert 23 not in secrets(run.said)
