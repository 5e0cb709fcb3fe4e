"""What destinations over HTTP share: the client, an answer that is no success, and the parts of a halved batch."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from inference_logging.errors import ConfigError, MissingExtraError
from inference_logging.shipping.line import Sent


class AnswerError(Exception):
    """An answer that is no success."""

    def __init__(self, answer: Any, kind: str, reason: str, code: int = 0) -> None:
        """Keep it by its ``kind``; ``code``: the server's own number of an error, 0: it has none."""
        self.kind, self.code = kind, code
        self.status, self.retry_after_s = answer.status_code, retry_after_s(answer)
        super().__init__(f"status {self.status}: {reason}")


def open_client(what: str, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None) -> Any:
    """Return a client of httpx, which connects when it has something to send.

    ``what`` needs it, in words. ``ca_file``: certificates to check the server's against, in place of the system's.
    Raises ``MissingExtraError``, and ``ConfigError`` for the file.
    """
    try:
        import httpx
    except ImportError:
        raise MissingExtraError(what, "httpx", "ship") from None
    try:
        verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
    except OSError as error:
        raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
    return httpx.Client(timeout=timeout_s, headers=headers, verify=verify)


def retry_after_s(answer: Any) -> float:
    """Return when an answer wants the next request, in seconds; 0: it does not say."""
    try:
        return float(answer.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0  # a date: the usual pause does


def joined(one: Sent, other: Sent) -> Sent:
    """Return the result of two sendings as one."""
    refused = {name: one.refused.get(name, 0) + other.refused.get(name, 0) for name in one.refused | other.refused}
    worse = other if other.failed else one
    return Sent([*one.failed, *other.failed], worse.error, worse.error_type, worse.retry_after_s, refused)
