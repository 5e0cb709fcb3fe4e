"""A real rsyslog: it takes messages by TCP and TLS, or reads segments and sends them by RELP to another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.kit.servers import free_port
from tests.kit.support import FRAMING, parse
from tests.ship.arrived import Record
from tests.ship.programs import Program, certificate, installed

PACKAGES: Final = "rsyslog rsyslog-relp rsyslog-gnutls rsyslog-openssl"
MAX_BYTES: Final = 1 << 20
_MODULES: Final = ("imfile", "imrelp", "imtcp", "lmnsd_gtls", "lmnsd_ossl", "omrelp")

# docs/syslog.md shows these three.
CONFIGURATION: Final = """\
global(
  maxMessageSize="{max_bytes}"
  defaultNetstreamDriverCAFile="{certificate}"
  defaultNetstreamDriverCertFile="{certificate}"
  defaultNetstreamDriverKeyFile="{key}"
)
module(load="imtcp" maxFrameSize="{max_bytes}")
template(name="record" type="string" string="%pri% %timestamp:::date-rfc3339% %hostname% %app-name% %procid% %msgid% \
%structured-data% %msg%\\n")
ruleset(name="records" queue.type="Direct") {{
  action(type="omfile" file="{records}" template="record")
}}
input(type="imtcp" port="{tcp}" ruleset="records")
input(type="imtcp" port="{gnutls}" ruleset="records"
  streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon")
"""
_MORE: Final = """\
input(type="imtcp" port="{openssl}" ruleset="records"
  streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
"""
READS_SEGMENTS: Final = """\
global(workDirectory="{state}" maxMessageSize="{max_bytes}")
module(load="imfile")
module(load="omrelp")
ruleset(name="send" queue.type="Direct") {{
  action(type="omrelp" target="{host}" port="{port}" template="RSYSLOG_SyslogProtocol23Format"
    action.resumeRetryCount="-1" action.resumeInterval="1" tls="on" tls.authMode="certvalid"
    tls.caCert="{certificate}" tls.myCert="{certificate}" tls.myPrivKey="{key}")
}}
input(type="imfile" file="{segments}/*.jsonl" tag="inference" facility="local0" severity="info" ruleset="send"
  persistStateInterval="100" persistStateAfterSubmission="on")
"""
TAKES_RELP: Final = """\
global(maxMessageSize="{max_bytes}")
module(load="imrelp")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="records" queue.type="Direct") {{
  action(type="omfile" file="{records}" template="line")
}}
input(type="imrelp" port="{port}" ruleset="records" tls="on" tls.authMode="certvalid"
  tls.caCert="{certificate}" tls.myCert="{certificate}" tls.myPrivKey="{key}")
"""
_LINE: Final = re.compile(
    rb"(?P<pri>\d+) (?P<timestamp>\S+) (?P<hostname>\S+) (?P<app_name>\S+) (?P<procid>\S+) (?P<msgid>\S+) "
    rb'(?P<structured>(?:\[[^ ]+(?: [^ =]+="(?:[^"\\\]]|\\.)*")*\])+|-) (?P<record>\{.*)'
)


class Message(NamedTuple):
    """What rsyslog has understood of one."""

    pri: str
    timestamp: str
    hostname: str
    app_name: str
    procid: str
    msgid: str
    structured: str
    record: str


class Rsyslogd(Program):
    """The program with its files in ``directory``, which is made; ``values`` are those of its configuration."""

    def __init__(self, directory: Path, configuration: str, is_ready: Callable[[], bool], **values: Any) -> None:
        path = installed("/usr/sbin/rsyslogd", PACKAGES)
        for module in _MODULES:
            if not any(Path("/usr/lib").glob(f"**/rsyslog/{module}.so")):
                pytest.skip(f"missing: {module} of rsyslog (on Debian: apt-get install {PACKAGES})")
        directory.mkdir()
        self._directory, self._lives = directory, 0
        self._text, self._values = configuration, {"max_bytes": MAX_BYTES, **values}
        self._file = directory / "rsyslog.conf"
        super().__init__([path, "-n", "-i", "NONE", "-f", self._file], directory / "log", is_ready)

    def start(self) -> None:
        """Start it with a file of its own for what it takes: what it dies with may end within a line."""
        self._lives += 1
        records = self._directory / f"records-{self._lives}"
        self._file.write_text(self._text.format(records=records, **self._values), "utf-8")
        super().start()

    def lines(self) -> list[bytes]:
        """Return the lines that it has stored in all its lives."""
        contents = [path.read_bytes() for path in sorted(self._directory.glob("records-*"))]
        return [line for content in contents for line in content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]]


class Rsyslog(Rsyslogd):
    """A server of syslog, which stores each message before it takes the next one."""

    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.ports = {name: free_port() for name in ("tcp", "gnutls", "openssl")}
        self._max_bytes = max_bytes

        def is_ready() -> bool:
            return listening().issuperset(self.ports.values())

        super().__init__(directory, CONFIGURATION + _MORE, is_ready, **self.ports)
        self.key, self.certificate = certificate(directory)
        self._values |= {"key": self.key, "certificate": self.certificate, "max_bytes": max_bytes}

    def url(self, name: str, options: str = "") -> str:
        """Return where to ship to by the input ``name``."""
        kind = "tcp" if name == "tcp" else "tls"
        return f"syslog+{kind}://localhost:{self.ports[name]}?max_bytes={self._max_bytes}{options}"

    def messages(self) -> list[Message]:
        """Return the messages that it has."""
        return [_parsed(line) for line in self.lines()]


class RelpServer(Rsyslogd):
    """A server of RELP over TLS, which stores each message before it acknowledges it."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        super().__init__(directory, TAKES_RELP, lambda: self.port in listening(), port=self.port)
        self.key, self.certificate = certificate(directory)
        self._values |= {"key": self.key, "certificate": self.certificate}

    def records(self) -> list[Record]:
        """Return the records that it has, without the lines that are the segments' own."""
        return [record for record in map(parse, self.lines()) if record["event_name"] not in FRAMING]


class SegmentReader(Rsyslogd):
    """Reads the segments in a directory, and sends each line to a server of RELP."""

    def __init__(self, directory: Path, segments: Path, server: RelpServer) -> None:
        of_server = {"host": "localhost", "port": server.port, "key": server.key, "certificate": server.certificate}
        state = directory / "state"
        super().__init__(directory, READS_SEGMENTS, lambda: True, segments=segments, state=state, **of_server)
        state.mkdir()


def listening() -> set[int]:
    """Return the ports that anything listens on here; none is connected to.

    Connections that were closed at once have made rsyslog's TCP input loop and take nothing more.
    """
    rows = (row.split() for table in Path("/proc/net").glob("tcp*") for row in table.read_text("utf-8").splitlines())
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def _parsed(line: bytes) -> Message:
    found = _LINE.fullmatch(line)
    assert found is not None, line[:500]
    return Message(**{name: value.decode() for name, value in found.groupdict().items()})
