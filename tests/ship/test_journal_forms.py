"""Entries of a journal: what was serialized is parsed back, and a real journal takes it."""

from __future__ import annotations

import array
import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.ship.journal import RECORD, Field, fields, serialized, stable_id
from inference_logging.ship.line import Destination
from tests.kit.segment_files import log, request
from tests.kit.support import parse, wait_until
from tests.ship.programs import Program, installed
from tests.ship.shippers import Ship
from tests.ship.stage import Stage
from tests.ship.test_syslog_forms import AWKWARD, LONG, RECORDS, TEXT, VALUES, line

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


Open = Callable[..., Destination]
NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
LINES: Final = [line(log(at, f"m{at}"), at) for at in range(4)]


def parsed(content: bytes) -> list[Field]:
    """Return the fields that a journal reads."""
    found = []
    while content:
        first, _, content = content.partition(b"\n")
        name, equals, value = first.partition(b"=")
        if not equals:
            length = int.from_bytes(content[:8], "little")
            value, content = content[8 : 8 + length], content[8 + length :]
            assert content[:1] == b"\n"
            content = content[1:]
        found.append((name.decode(), value))
    return found


@given(st.lists(st.tuples(st.from_regex(NAME, fullmatch=True), st.binary()), max_size=5))
def test_fields_are_parsed_back_whatever_is_in_them(given_fields: list[Field]) -> None:
    assert parsed(serialized(given_fields)) == given_fields


@given(record=RECORDS, resource=st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_record_is_an_entry_whose_names_a_journal_takes(record: dict[str, Any], resource: dict[str, Any]) -> None:
    made = line(record, 0, {"service.name": "svc", **resource})
    found = parsed(serialized(fields(made)))
    assert found == fields(made)
    assert all(NAME.fullmatch(name) and not name.startswith("_") for name, _ in found)
    assert [value for name, value in found if name == RECORD] == [made.raw]


def test_a_request_is_found_by_each_of_its_members() -> None:
    record = request(1.5, nested={"a": 1}, streamed=True, error="x" * 1025)
    found = dict(fields(line(record)))
    assert found["MESSAGE"] == b"request"
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["SYSLOG_PID"]) == (b"6", b"svc", b"1")
    assert found["MESSAGE_ID"].decode() == stable_id("request") == "da2d7815bf995d859b8196edc7463515"
    assert found["INFERENCE_LOGGING_HTTP_RESPONSE_STATUS_CODE"] == b"200"
    assert found["INFERENCE_LOGGING_TRACE_ID"] == record["trace_id"].encode()
    assert found["INFERENCE_LOGGING_STREAMED"] == b"true"
    assert found["INFERENCE_LOGGING_RESOURCE_K8S_POD_NAME"] == b"pod-1"
    assert not {"INFERENCE_LOGGING_NESTED", "INFERENCE_LOGGING_ERROR"} & found.keys(), "they are in the record"
    assert dict(fields(line(log(1, "hello"))))["MESSAGE"] == b"hello"


class Journal(threading.Thread):
    """Reads datagrams, also those that are a sealed file, until an empty one."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.got: list[bytes] = []
        self.files = 0
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listening.bind(str(path))

    def run(self) -> None:
        """Read."""
        with self.listening:
            while True:
                content, ancillary, *_ = self.listening.recvmsg(1 << 20, socket.CMSG_SPACE(4))
                if ancillary:
                    assert content == b""
                    (descriptor,) = array.array("i", ancillary[0][2])
                    with pytest.raises(OSError, match="not permitted"):
                        os.write(descriptor, b"sealed")
                    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                    os.close(descriptor)
                    self.files += 1
                if not content:
                    return
                self.got.append(content)


def test_each_entry_is_a_datagram_and_a_large_one_a_sealed_file(opened: Open, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "socket")
    journal.start()
    assert not opened(ship_to=f"journald://{tmp_path}/socket").send([*LINES, LONG, *LINES]).failed
    journal.join()
    assert [parsed(content) for content in journal.got] == [fields(one) for one in (*LINES, LONG, *LINES)]
    assert journal.files == 1


def test_what_a_journal_has_not_read_has_not_arrived(opened: Open, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "socket")
    destination = opened(ship_to=f"journald://{tmp_path}/socket", ship_timeout_s=0.2)
    sent = destination.send(LINES[:1])
    assert (list(sent.failed), sent.error_type) == (LINES[:1], "TimeoutError")
    threading.Timer(0.05, journal.listening.close).start()
    sent = opened(ship_to=f"journald://{tmp_path}/socket", ship_timeout_s=60).send(LINES[:1])
    assert (list(sent.failed), bool(sent.error)) == (LINES[:1], True), "it was closed with all that was unread"


def test_without_a_journal_everything_failed_and_nothing_raises(opened: Open, tmp_path: Path) -> None:
    sent = opened(ship_to=f"journald://{tmp_path}/missing").send(LINES)
    assert (list(sent.failed), sent.error_type) == (LINES, "FileNotFoundError")
    assert sent.error == f"{tmp_path}/missing: No such file or directory"


Start = Callable[[Any], Any]
Entry = dict[str, Any]


@pytest.fixture
def journald(start: Start, tmp_path: Path) -> Iterator[Journald]:
    """Run a journald; what it makes is removed after the test."""
    made = Journald(tmp_path / "journald")
    try:
        yield start(made)
    finally:
        made.end()
        made.remove()


def records(entries: list[Entry]) -> list[Any]:
    """Return the records that entries have."""
    return [parse(text(entry[RECORD]).encode()) for entry in entries]


def assert_has_its_fields(entry: Entry, record: Any, service_name: str) -> None:
    """Check that an entry can be found by what the record says."""
    assert entry["SYSLOG_IDENTIFIER"] == service_name
    assert entry["MESSAGE"] == record.get("message", record["event_name"])
    assert entry["MESSAGE_ID"] == stable_id(record["event_name"])
    assert entry["PRIORITY"] == {"INFO": "6", "WARN": "4", "ERROR": "3"}[record["severity_text"]]
    for name in ("boot_id", "pid", "seq", "trace_id", "request_id", "http.route", "duration_s"):
        if name in record:
            assert entry[f"INFERENCE_LOGGING_{name.upper().replace('.', '_')}"] == str(record[name])


@pytest.mark.shipping
def test_a_killed_journald_loses_at_most_the_entry_that_it_was_about_to_store(
    stage: Callable[..., Stage], start: Start, journald: Journald
) -> None:
    staged = stage()
    ship: Ship = start(Ship(staged.config, journald.url))
    written = staged.ship_under_kills(ship, journald, rounds=1)
    journald.stop()
    entries = journald.entries()
    staged.show("journald", written, records(entries), journald, ship, most_lost=journald.kills)
    for entry, record in zip(entries, records(entries), strict=True):
        assert_has_its_fields(entry, record, staged.config.service_name)
    segments, marked = staged.marks("journald")
    assert segments == marked


@pytest.mark.shipping
def test_awkward_texts_arrive_at_journald_as_they_are(opened: Open, journald: Journald) -> None:
    assert not opened(ship_to=journald.url).send([*AWKWARD, LONG]).failed
    expected = {line.raw.decode() for line in (*AWKWARD, LONG)}
    wait_until(lambda: {text(entry[RECORD]) for entry in journald.entries()} == expected, "journald to store them")


@pytest.mark.shipping
def test_nothing_counts_as_arrived_while_journald_does_not_read_or_is_gone(opened: Open, journald: Journald) -> None:
    destination = opened(ship_to=journald.url, ship_timeout_s=0.3)
    assert not destination.send(AWKWARD).failed
    journald.pause()
    sent = destination.send(AWKWARD[:1])
    assert (sent.failed, sent.error_type) == (AWKWARD[:1], "TimeoutError")
    journald.kill()
    sent = destination.send(AWKWARD[:1])
    assert (sent.failed, sent.error_type) == (AWKWARD[:1], "ConnectionRefusedError")
    journald.start()
    assert not destination.send(AWKWARD[:1]).failed
