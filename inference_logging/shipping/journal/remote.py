"""systemd-journal-remote as a destination: entries of the journal's export format, posted, and stored when it answers.

If a request is answered with 400 or 413, it is halved until the record that is the cause is alone, which is refused.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from typing import Final

from inference_logging.errors import MissingExtraError
from inference_logging.shipping.http import joined
from inference_logging.shipping.journal.fields import fields, serialized, stable_id
from inference_logging.shipping.line import Line, Sent

PORT: Final = 19532
PATH: Final = "/upload"
REFUSED: Final = (400, 413)
_TYPE: Final = "application/vnd.fdo.journal"


class RemoteJournal:
    """The server at ``url``. Raises ``MissingExtraError``."""

    def __init__(self, url: str, *, timeout_s: float, context: ssl.SSLContext | None) -> None:
        """Prepare a client; it connects when it has something to send."""
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("shipping to a journal", "httpx", "ship") from None
        self._httpx, self._url = httpx, url
        self._client = httpx.Client(timeout=timeout_s, headers={"Content-Type": _TYPE}, verify=context or True)

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them in one request."""
        content = b"".join(map(entry, lines))
        try:
            answer = self._client.post(self._url, content=content)
        except (self._httpx.HTTPError, OSError) as error:
            return Sent(lines, f"{type(error).__name__}: {error}", type(error).__name__)
        if answer.is_success:
            return Sent()
        status = answer.status_code
        if status not in REFUSED:
            return Sent(lines, f"status {status}: {answer.text[:200]}", str(status))
        if len(lines) == 1:
            return Sent(refused={str(status): 1})
        half = len(lines) // 2
        return joined(self.send(lines[:half]), self.send(lines[half:]))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def entry(line: Line) -> bytes:
    """Return the entry of a line. Journals take none without a time or a boot, which stands for the process's."""
    unix_nano = line.unix_nano() or time.time_ns()
    boot = stable_id(str(line.record.get("boot_id", ""))).encode()
    host = line.resource.get("k8s.pod.name", line.resource.get("host.name"))
    known = [("_BOOT_ID", boot), *([("_HOSTNAME", str(host).encode("utf-8", "replace"))] if host else [])]
    return b"__REALTIME_TIMESTAMP=%d\n%b\n" % (unix_nano // 1000, serialized([*known, *fields(line)]))
