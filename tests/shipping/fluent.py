"""A real Fluent forward server, with TLS and a shared key, that keeps what it acknowledges."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.servers import free_port
from tests.shipping.programs import Program, certificate, installed, listens
from tests.support import parse
from tests.tools.tools import tool

SHARED_KEY: Final = "known-to-both"
TAG: Final = "inference.requests"


class Fluent(Program):
    """The server; its data are in ``directory``."""

    def __init__(self, directory: Path) -> None:
        packages, node = tool("fluent"), installed("node", "nodejs")
        directory.mkdir()
        self._port, self._file = free_port(), directory / "records"
        key, self.certificate = certificate(directory)
        script = Path(__file__).with_suffix(".js")
        arguments: list[str | Path] = [packages, str(self._port), key, self.certificate, SHARED_KEY, self._file]
        super().__init__([node, script, *arguments], directory / "log", lambda: listens(self._port))

    @property
    def url(self) -> str:
        """Where to ship to."""
        return f"forward+tls://localhost:{self._port}/{TAG}"

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries that it has: tag, seconds, nanoseconds and record. One it died with is cut off."""
        content = self._file.read_bytes() if self._file.exists() else b""
        return [parse(line) for line in content[: content.rfind(b"\n") + 1].splitlines() if line]
