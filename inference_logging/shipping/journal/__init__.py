"""systemd's journal as a destination: the one of this machine, and systemd-journal-remote on another."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from inference_logging.shipping.connections import client_context
from inference_logging.shipping.journal.local import LocalJournal
from inference_logging.shipping.journal.remote import PATH, PORT, RemoteJournal
from inference_logging.shipping.line import Destination


def open_journal(to: str, *, timeout_s: float, ca_file: str | None) -> Destination:
    """Return the destination of a ``ship_to`` of a journal. Raises ``ConfigError``, ``MissingExtraError``."""
    parts = urlsplit(to)
    if parts.scheme == "journald":
        return LocalJournal(Path(unquote(to.partition("://")[2])), timeout_s=timeout_s)
    scheme = parts.scheme.partition("+")[2]
    context = client_context(ca_file, dict(parse_qsl(parts.query))) if scheme == "https" else None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    url = f"{scheme}://{host}:{parts.port or PORT}{parts.path if parts.path.strip('/') else PATH}"
    return RemoteJournal(url, timeout_s=timeout_s, context=context)
