"""A real rsyslog that takes messages by RELP, TCP and TLS, and stores each before it takes the next one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.servers import free_port
from tests.shipping.programs import Program, certificate, installed

PACKAGES: Final = "rsyslog rsyslog-relp rsyslog-gnutls rsyslog-openssl"
MAX_BYTES: Final = 1 << 20
_MODULES: Final = ("imrelp", "imtcp", "lmnsd_gtls", "lmnsd_ossl")

# docs/syslog.md shows it.
CONFIGURATION: Final = """\
global(
  maxMessageSize="{max_bytes}"
  defaultNetstreamDriverCAFile="{certificate}"
  defaultNetstreamDriverCertFile="{certificate}"
  defaultNetstreamDriverKeyFile="{key}"
)
module(load="imrelp")
module(load="imtcp" maxFrameSize="{max_bytes}")
template(name="record" type="string" string="%pri% %timestamp:::date-rfc3339% %hostname% %app-name% %procid% %msgid% \
%structured-data% %msg%\\n")
ruleset(name="records" queue.type="Direct") {{
  action(type="omfile" file="{records}" template="record")
}}
input(type="imrelp" port="{relp}" ruleset="records")
input(type="imrelp" port="{relp_tls}" ruleset="records" tls="on" tls.authMode="certvalid"
  tls.caCert="{certificate}" tls.myCert="{certificate}" tls.myPrivKey="{key}")
input(type="imtcp" port="{tcp}" ruleset="records")
input(type="imtcp" port="{gnutls}" ruleset="records"
  streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon")
"""
_MORE: Final = """\
input(type="imtcp" port="{openssl}" ruleset="records"
  streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
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


class Rsyslog(Program):
    """The server; its data are in ``directory``, a file for each life: what it dies with may end within a line."""

    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES) -> None:
        path = installed("/usr/sbin/rsyslogd", PACKAGES)
        for module in _MODULES:
            if not any(Path("/usr/lib").glob(f"**/rsyslog/{module}.so")):
                pytest.skip(f"missing: {module} of rsyslog (on Debian: apt-get install {PACKAGES})")
        directory.mkdir()
        self.key, self.certificate = certificate(directory)
        self.ports = {name: free_port() for name in ("relp", "relp_tls", "tcp", "gnutls", "openssl")}
        self._directory, self._lives, self._max_bytes = directory, 0, max_bytes
        self._configuration = directory / "rsyslog.conf"
        command: list[str | Path] = [path, "-n", "-i", "NONE", "-f", self._configuration]
        super().__init__(command, directory / "log", lambda: listening().issuperset(self.ports.values()))

    def start(self) -> None:
        """Start it with a file of its own."""
        self._lives += 1
        text = (CONFIGURATION + _MORE).format(
            certificate=self.certificate,
            key=self.key,
            max_bytes=self._max_bytes,
            records=self._directory / f"records-{self._lives}",
            **self.ports,
        )
        self._configuration.write_text(text, "utf-8")
        super().start()

    def url(self, name: str, options: str = "") -> str:
        """Return where to ship to by the input ``name``."""
        kind = {"relp": "relp", "relp_tls": "relp+tls", "tcp": "syslog+tcp"}.get(name, "syslog+tls")
        own = f"&cert={self.certificate}&key={self.key}" if name == "relp_tls" else ""
        return f"{kind}://localhost:{self.ports[name]}?max_bytes={self._max_bytes}{own}{options}"

    def messages(self) -> list[Message]:
        """Return the messages that it has."""
        return [_parsed(line) for line in self._lines()]

    def _lines(self) -> Iterable[bytes]:
        for path in sorted(self._directory.glob("records-*")):
            content = path.read_bytes()
            yield from content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]


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
