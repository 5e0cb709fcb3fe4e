"""What destinations over HTTP share: the client, answers of a bounded size, one that is no success, files of headers.

A machine between this host and a destination can answer in its place: the sign-in page of a network with a status of
200, or a few bytes that unpack to gigabytes. So answers are asked for as they are, read up to a limit, and each
destination looks at what it gets before it counts records as arrived.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging.errors import ConfigError, MissingExtraError

MOST_ANSWER_BYTES: Final = 4 << 20
"""An answer for each of 1,000 documents takes a tenth of it."""


@dataclass(frozen=True)
class Answer:
    """What a server has answered."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status says so."""
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        """The content as text, whatever its type."""
        return self.content.decode("utf-8", "replace")

    @property
    def media_type(self) -> str:
        """The type that the content is said to have; empty if nothing is said."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """Return the content as JSON. Raises ``ValueError``."""
        return orjson.loads(self.content)


class AnswerError(Exception):
    """An answer that is no success, or none of what was asked."""

    def __init__(self, answer: Answer, kind: str, reason: str, code: int = 0) -> None:
        """Keep it by its ``kind``; ``code``: the server's own number of an error, 0: it has none."""
        self.kind, self.code = kind, code
        self.status, self.retry_after_s = answer.status_code, retry_after_s(answer)
        super().__init__(f"status {self.status}: {reason}")


def open_client(
    what: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str],
    ca_file: str | None = None,
) -> Any:
    """Return a client of httpx, which connects when it has something to send.

    ``what`` needs it, in words. ``ca_file``: certificates to check the server's against, in place of the system's.
    Raises ``MissingExtraError``, and ``ConfigError`` for the file.
    """
    try:
        import httpx
    except ImportError:
        raise MissingExtraError(what, "httpx", "ship") from None
    try:
        context = ssl.create_default_context(cafile=ca_file) if ca_file else True
    except OSError as error:
        raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
    return httpx.Client(timeout=timeout_s, headers={**headers, "Accept-Encoding": "identity"}, verify=context)


def ask(client: Any, method: str, url: str, **request: Any) -> Answer:
    """Return the answer to a request. Raises ``AnswerError`` for one that is packed or too long, and as the client."""
    content = bytearray()
    with client.stream(method, url, **request) as answer:
        begun = Answer(answer.status_code, answer.headers, b"")
        if answer.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
            raise AnswerError(begun, "packed_answer", "the answer is compressed, though the request did not ask for it")
        for block in answer.iter_raw():
            content += block
            if len(content) > MOST_ANSWER_BYTES:
                raise AnswerError(begun, "long_answer", f"the answer is longer than {MOST_ANSWER_BYTES:,} bytes")
    return Answer(answer.status_code, answer.headers, bytes(content))


def retry_after_s(answer: Answer) -> float:
    """Return when an answer wants the next request, in seconds; 0: it does not say."""
    try:
        return float(answer.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0  # a date: the usual pause does


_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""


def pairs(path: Path | None, parameter: str, sign: str) -> list[tuple[str, str]]:
    """Return the lines of a file as names and values; empty ones and comments are left out.

    ``sign`` is between both: a colon for headers, whose form is checked. Raises ``ConfigError`` naming ``parameter``.
    """
    if path is None:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{parameter}={str(path)!r}: {error}"]) from None
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        name, found, value = (part.strip() for part in line.partition(sign))
        if line.strip() and not line.lstrip().startswith("#"):
            if not (name and found) or (sign == ":" and _HEADER.fullmatch(name) is None):
                # Its text may be a secret.
                raise ConfigError([f"{parameter}={str(path)!r}: line {number} is not name{sign}value"])
            if sign == ":" and not (line.strip().isascii() and line.strip().isprintable()):
                raise ConfigError([f"{parameter}={str(path)!r}: line {number} must be printable ASCII"])
            pairs.append((name, value))
    return pairs
