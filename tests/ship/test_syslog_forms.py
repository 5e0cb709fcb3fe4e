"""Messages of RFC 5424 and their framing: what was framed is parsed back, and a real rsyslog takes it."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.errors import ConfigError
from inference_logging.ship.connections import wait_until_taken
from inference_logging.ship.journal import NAMESPACE, stable_id
from inference_logging.ship.line import Destination, Line
from inference_logging.ship.syslog import Format, framed
from tests.kit.segment_files import log, request
from tests.kit.support import parse, wait_until
from tests.ship.arrived import Record, compare
from tests.ship.rsyslog import (
    CONFIGURATION,
    MAX_BYTES,
    READS_SEGMENTS,
    TAKES_RELP,
    Message,
    RelpServer,
    Rsyslog,
    SegmentReader,
)
from tests.ship.shippers import QUICK, Ship
from tests.ship.stage import Stage

RESOURCE: Final = {"service.name": "svc", "k8s.pod.name": "pod-1"}
TEXTS: Final = (
    'quotes " and \\ and ] and [x@1 a="b"]',
    "a line\nand another\r\n\tand\x00what follows\x1b[0m\x7f",
    "wörd 日本語 \U0001f389   \u2028 ﻿",
    "\ufffd, which stands for what was no text",
    "5 <13>1 - - - - - - another message\n",
    "",
    " ",
    "x" * (300 << 10),
)


def line(record: dict[str, Any], offset: int = 0, resource: dict[str, Any] | None = None) -> Line:
    """Return the line of a record."""
    return Line("svc", "svc-1.jsonl", offset, orjson.dumps(record), record, resource or RESOURCE)


AWKWARD: Final = [
    *(line(log(at, text, request_id=text[:100]), at) for at, text in enumerate(TEXTS)),
    line(request(100, error=TEXTS[0]), 100),
    line({"timestamp": "soon", "boot_id": "b"}, 101),
    line({"event_name": "an event with spaces " * 5, "pid": 1, "boot_id": None}, 102, {'a "]=\n': TEXTS[1]}),
]
LONG: Final = line(log(200, "x" * 500_000), 200)


Open = Callable[..., Destination]
LINES: Final = [line(log(at, f"m{at}"), at) for at in range(300)]
_SD_NAME: Final = r"[!#-<>-\\^-~]{1,32}"
_PARAMETER: Final = rf' ({_SD_NAME})="((?:[^"\\\]]|\\["\\\]])*)"'
_ELEMENT: Final = rf"\[({_SD_NAME}@[0-9]+)((?:{_PARAMETER})*)\]"
MESSAGE: Final = re.compile(
    r"<(?P<pri>0|[1-9][0-9]{0,2})>1 (?P<time>-|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z) (?P<host>[!-~]{1,255}) "
    rf"(?P<app>[!-~]{{1,48}}) (?P<process>[!-~]{{1,128}}) (?P<event>[!-~]{{1,32}}) (?P<structured>-|(?:{_ELEMENT})+) "
    r"(?P<text>.*)",
    re.DOTALL,
)
"""By the grammar of RFC 5424, as far as records use it."""


def elements(structured: str) -> dict[str, dict[str, str]]:
    """Return the elements of structured data with their parameters."""
    return {
        name: {key: re.sub(r'\\(["\\\]])', r"\1", value) for key, value in re.findall(_PARAMETER, parameters)}
        for name, parameters, *_ in re.findall(_ELEMENT, structured)
    }


TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: Final = st.one_of(
    TEXT, st.integers(-(2**63), 2**63), st.booleans(), st.none(), st.floats(allow_nan=False), st.lists(TEXT)
)
NAMES: Final = st.one_of(
    st.sampled_from(["timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "trace_id", "request_id"]),
    TEXT,
)
RECORDS: Final = st.dictionaries(NAMES, VALUES, max_size=8)


@given(record=RECORDS, resource=st.dictionaries(TEXT, VALUES, max_size=4), service=TEXT)
def test_any_record_is_a_message_of_the_grammar_with_its_line_and_its_ids(
    record: dict[str, Any], resource: dict[str, Any], service: str
) -> None:
    made = line(record, 0, {"service.name": service, **resource})
    found = MESSAGE.fullmatch(Format().message(Line(service, *_rest(made))).decode())
    assert found is not None
    assert found["text"].encode() == made.raw
    assert not re.search(r"[\x00-\x1f\x7f]", found["structured"])
    ids = elements(found["structured"]).get("inference_logging@32473", {})
    for name in ("boot_id", "pid", "seq", "trace_id", "request_id"):
        if record.get(name) is None:
            assert name not in ids
        else:
            assert ids[name] == re.sub(r"[\x00-\x1f\x7f]", "\ufffd", str(record[name]))


def _rest(one: Line) -> tuple[Any, ...]:
    return one.segment, one.offset, one.raw, one.record, one.resource


@pytest.mark.parametrize(
    ("severity", "options", "pri"),
    [
        ("INFO", {}, 134), ("ERROR", {}, 131), ("FATAL", {}, 130), ("WARN", {}, 132), ("DEBUG", {}, 135),
        ("TRACE", {}, 135), ("else", {}, 133), ("INFO", {"facility": "user"}, 14),
        ("INFO", {"facility": "local7"}, 190), ("WARN2", {}, 132), ("ERROR4", {}, 131), ("INFO3", {}, 134),
    ],
)  # fmt: skip
def test_the_priority_is_facility_and_severity(severity: str, options: dict[str, Any], pri: int) -> None:
    message = Format(**options).message(line({"severity_text": severity}))
    assert message.startswith(b"<%d>1 " % pri)


def test_a_request_is_a_message_with_all_that_finds_it() -> None:
    record = request(1.5)
    message = Format(enterprise=99).message(line(record)).decode()
    head, _, text = message.partition("] {")
    assert head == (
        "<134>1 2026-11-21T05:00:01.500000Z pod-1 svc 1 request "
        f'[inference_logging@99 boot_id="{record["boot_id"]}" pid="1" seq="1500" trace_id="{record["trace_id"]}" '
        f'request_id="{record["request_id"]}"][resource@99 service.name="svc" k8s.pod.name="pod-1"'
    )
    assert "{" + text == line(record).raw.decode()


def test_texts_that_are_hard_on_a_server_are_what_they_were() -> None:
    for one in AWKWARD:
        found = MESSAGE.fullmatch(Format().message(one).decode())
        assert found is not None
        assert found["text"].encode() == one.raw


def unframed(content: bytes) -> list[bytes]:
    """Return the messages that stand behind their lengths."""
    messages = []
    while content:
        length, _, content = content.partition(b" ")
        assert re.fullmatch(rb"[1-9][0-9]*", length)
        messages.append(content[: int(length)])
        assert len(messages[-1]) == int(length)
        content = content[int(length) :]
    return messages


@given(st.lists(st.binary(min_size=1)))
def test_messages_are_found_by_their_lengths_whatever_is_in_them(messages: list[bytes]) -> None:
    assert unframed(b"".join(map(framed, messages))) == messages


class Server(threading.Thread):
    """Serves one connection after the other, each by the next of ``ways``."""

    def __init__(self, *ways: Callable[[socket.socket], None]) -> None:
        super().__init__(daemon=True)
        self._listening, self._ways = socket.create_server(("127.0.0.1", 0)), ways
        self.port = self._listening.getsockname()[1]
        self.start()

    def run(self) -> None:
        """Serve."""
        with self._listening:
            for way in self._ways:
                connection, _ = self._listening.accept()
                with connection:
                    way(connection)


def read_all(connection: socket.socket) -> bytes:
    """Read to the client's end."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_by_tcp_a_batch_is_a_connection_that_the_client_ends_first(opened: Open) -> None:
    got: list[bytes] = []
    server = Server(*[lambda connection: got.append(read_all(connection))] * 2)
    destination = opened(ship_to=f"syslog+tcp://127.0.0.1:{server.port}")
    for batch in (LINES[:3], LINES[3:5]):
        assert not destination.send(batch).failed
    server.join()
    texts = [[message.partition(b"] {")[2] for message in unframed(content)] for content in got]
    assert texts == [[one.raw[1:] for one in batch] for batch in (LINES[:3], LINES[3:5])]


def test_by_tcp_what_a_server_has_not_read_or_not_ended_has_failed(opened: Open) -> None:
    ended = threading.Event()

    def wait(_connection: socket.socket) -> None:
        ended.wait(60)

    server = Server(lambda connection: None, wait)
    destination = opened(ship_to=f"syslog+tcp://127.0.0.1:{server.port}", ship_timeout_s=0.5)
    reset = destination.send(LINES)
    assert (list(reset.failed), bool(reset.error)) == (LINES, True)
    silent = destination.send(LINES)
    assert (list(silent.failed), silent.error_type) == (LINES, "TimeoutError")
    ended.set()
    server.join()


def test_bytes_are_taken_once_the_other_side_has_them_and_a_reset_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    with connection:
        connection.sendall(b"taken")
        wait_until_taken(connection, 60)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while connection.send(b"x" * 65536):
                pass
        with pytest.raises(TimeoutError, match="has not accepted"):
            wait_until_taken(connection, 0.01)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        with pytest.raises(ConnectionResetError):
            wait_until_taken(connection, 60)


def test_what_is_longer_than_the_server_takes_is_refused_once_and_never_sent(opened: Open) -> None:
    destination = opened(ship_to="syslog+tcp://127.0.0.1:1", ship_timeout_s=0.5)
    sent = destination.send([LINES[0], LONG])
    assert (list(sent.failed), sent.refused) == ([LINES[0]], {"longer_than_8192_bytes": 1})
    alone = destination.send([LONG])
    assert (list(alone.failed), alone.error, alone.refused) == ([], "", {"longer_than_8192_bytes": 1})


def test_what_every_server_takes_may_not_be_refused(opened: Open) -> None:
    with pytest.raises(ConfigError, match="max_bytes must be 2048 or more"):
        opened(ship_to="syslog+tcp://a?max_bytes=2047")


def test_files_of_a_client_certificate_are_reported_by_their_option(opened: Open) -> None:
    with pytest.raises(ConfigError, match="ship_to: cert='/missing'"):
        opened(ship_to="syslog+tls://a?cert=/missing")
    with pytest.raises(ConfigError, match="ship_to: key='/missing': needs cert"):
        opened(ship_to="syslog+tls://a?key=/missing")


def test_the_page_shows_the_configurations_that_the_tests_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "syslog.md").read_text("utf-8")
    files = {"certificate": "tls.pem", "key": "tls.key"}
    shown = {name: f"/etc/rsyslog.d/{file}" for name, file in files.items()}
    shown |= {"records": "/var/log/inference.jsonl", "segments": "/var/log/inference", "state": "/var/spool/rsyslog"}
    shown["host"], numbers = "logs.example", {"max_bytes": MAX_BYTES, "tcp": 601, "gnutls": 6514, "port": 2514}
    for text in (CONFIGURATION, READS_SEGMENTS, TAKES_RELP):
        assert f"```text\n{text.format(**shown, **numbers)}```" in page
    assert f"max_bytes={MAX_BYTES}" in page
    assert str(NAMESPACE) in page
    assert f"MESSAGE_ID={stable_id('request')}" in page


Start = Callable[[Any], Any]
BATCH = int(QUICK["ship_batch_records"])


def assert_is_the_record(message: Message, service_name: str) -> None:
    """Check that the header and the structured data say what the record says."""
    record = parse(message.record.encode())
    assert (message.app_name, message.procid) == (service_name, str(record["pid"]))
    assert message.msgid == record["event_name"][:32]
    assert message.timestamp == f"{record['timestamp'][:26]}Z"
    assert f'boot_id="{record["boot_id"]}" pid="{record["pid"]}"' in message.structured
    assert f'service.name="{service_name}"' in message.structured
    if "trace_id" in record:
        assert f'trace_id="{record["trace_id"]}"' in message.structured


@pytest.mark.shipping
@pytest.mark.parametrize("name", ["tcp", "gnutls", "openssl"])
def test_by_syslog_a_killed_shipper_loses_nothing_and_a_killed_server_what_it_was_about_to_store(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, name: str
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog"))
    staged = stage()
    ship: Ship = start(Ship(staged.config, rsyslog.url(name), ship_ca_file=rsyslog.certificate))
    written = staged.ship_under_kills(ship, rsyslog, rounds=1)
    messages = rsyslog.messages()
    arrived = [parse(message.record.encode()) for message in messages]
    most_lost = BATCH * rsyslog.kills
    staged.show(f"rsyslog by syslog, {name}", written, arrived, rsyslog, ship, most_lost=most_lost)
    for message in messages:
        assert_is_the_record(message, staged.config.service_name)
    segments, marked = staged.marks("syslog")
    assert segments == marked


@pytest.mark.shipping
@pytest.mark.parametrize("name", ["tcp", "gnutls", "openssl"])
def test_awkward_texts_arrive_as_they_are_and_one_that_is_too_long_is_refused(
    start: Start, opened: Open, tmp_path: Path, name: str
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog", max_bytes=400_000))
    destination = opened(ship_to=rsyslog.url(name), ship_ca_file=rsyslog.certificate)
    sent = destination.send([*AWKWARD, LONG, *AWKWARD])
    assert (list(sent.failed), sent.error) == ([], "")
    assert sent.refused == {"longer_than_400000_bytes": 1}
    destination.close()
    rsyslog.stop()
    messages = rsyslog.messages()
    assert [message.record.encode() for message in messages] == [line.raw for line in AWKWARD] * 2
    assert max(len(message.record) for message in messages) > 300 << 10


@pytest.mark.shipping
def test_what_is_longer_than_the_server_takes_it_cuts_so_the_shipper_has_to_know(
    start: Start, opened: Open, tmp_path: Path
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog", max_bytes=8192))
    assert not opened(ship_to=f"{rsyslog.url('tcp')}0000").send([LONG]).failed, "as if it took so much"
    assert opened(ship_to=rsyslog.url("tcp")).send([LONG]).refused == {"longer_than_8192_bytes": 1}
    rsyslog.stop()
    assert 0 < max(map(len, rsyslog.lines())) < 2 * 8192


@pytest.mark.shipping
@pytest.mark.parametrize("name", ["gnutls", "openssl"])
def test_a_server_of_another_name_gets_nothing(start: Start, opened: Open, tmp_path: Path, name: str) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog"))
    url = rsyslog.url(name).replace("localhost", "127.0.0.2")
    sent = opened(ship_to=url, ship_ca_file=rsyslog.certificate).send(AWKWARD)
    assert list(sent.failed) == AWKWARD
    assert sent.error_type == "SSLCertVerificationError"
    assert "certificate is not valid for '127.0.0.2'" in sent.error
    other = opened(ship_to=rsyslog.url(name)).send(AWKWARD)
    assert "self-signed certificate" in other.error
    assert rsyslog.messages() == []


@pytest.mark.shipping
def test_by_relp_each_record_of_the_segments_arrives_though_the_server_is_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    server: RelpServer = start(RelpServer(tmp_path / "server"))
    staged = stage()
    reader: SegmentReader = start(SegmentReader(tmp_path / "reader", staged.config.directory, server))
    with staged.load() as load:
        wait_until(lambda: len(server.records()) >= 100, "records to arrive")
        server.kill()
        load.wait_for(50)
        server.start()
        reader.stop()
        load.wait_for(50)
        reader.start()
    written = staged.end()

    def look() -> list[Record] | None:
        found = server.records()
        return None if compare(written, found).missing else found

    staged.show("segments by rsyslog's RELP", written, wait_until(look, "every record"), server)
