"""One request: sent, its answer read as it comes, and left where the recorded client left.

The answer is read by the reader of the recording, so chunks, failures and token counts are counted by the same rules.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from inference_logging._native import AnswerReader
from inference_logging.errors import MissingExtraError
from inference_logging.prove.replay.schedule import ABORTED, Planned

try:
    import httpx
except ImportError:
    raise MissingExtraError("replay", "httpx", "replay") from None

NOT_SENT: Final = "not_sent"
"""No connection, or nothing that could be sent on it."""
BROKEN: Final = "broken"
"""Sent; the answer did not come, or not whole."""
UNFINISHED: Final = "unfinished"
"""Still under way when the replay was interrupted."""

_CONNECT_TIMEOUT_S: Final = 30.0
_KEEP_CONNECTION_S: Final = 2.0
"""Less than servers keep a connection: one that both ends close at once would lose a request."""
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Usage(NamedTuple):
    """Tokens that the server counted; None: it did not say."""

    input: int | None = None
    output: int | None = None


@dataclass
class Answer:
    """What became of a request. Times are seconds after it was sent."""

    trace_id: str
    outcome: str = UNFINISHED
    """As in a record: ``ok``, ``error`` (status from 500 on, or an error in the stream), ``client_disconnect`` (left as
    recorded); or a word of this module."""
    error: str | None = None
    status: int | None = None
    is_stream: bool = False
    duration_s: float = 0.0
    chunks_s: list[float] = field(default_factory=list)
    """When each chunk came."""
    body_bytes: int = 0
    usage: Usage = field(default_factory=Usage)


class Client:
    """Sends requests to the server at ``url``, any number at once; ``headers`` go with each.

    ``timeout_s``: the longest time without a byte. ``ca_file``: certificates to check the server against, in place of
    the system's. Proxies and passwords of the environment are not used. Raises ``OSError`` for a file that can't be
    used.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout_s: float, ca_file: str | None = None) -> None:
        """Prepare; it connects when it has something to send."""
        self._url = url.rstrip("/")
        self._client = httpx.AsyncClient(
            headers={"User-Agent": "inference-logging-replay", "Accept-Encoding": "identity", **headers},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S), pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_CONNECTION_S),
            verify=_context(ca_file) if ca_file else True,
            trust_env=False,
        )

    async def __aenter__(self) -> Client:
        """Return it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(self, planned: Planned, answer: Answer) -> None:
        """Send a request and fill in its answer, which holds what came until then if this is cancelled."""
        began = time.perf_counter()
        try:
            # A client that left before the first chunk had waited so long; otherwise nothing ends it.
            await asyncio.wait_for(self._exchange(planned, answer, began), planned.abort_s)
        except asyncio.TimeoutError as error:
            # Only with a time to leave at is it the one of `wait_for`.
            left = planned.abort_s is not None
            answer.outcome, answer.error = (ABORTED, None) if left else (BROKEN, _words(error))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.LocalProtocolError, httpx.WriteError) as error:
            answer.outcome, answer.error = NOT_SENT, _words(error)
        except (httpx.HTTPError, OSError) as error:
            answer.outcome, answer.error = BROKEN, _words(error)
        answer.duration_s = time.perf_counter() - began

    async def _exchange(self, planned: Planned, answer: Answer, began: float) -> None:
        headers = {"Content-Type": "application/json", "traceparent": f"00-{answer.trace_id}-{secrets.token_hex(8)}-01"}
        if _REQUEST_ID.fullmatch(planned.request_id):
            headers["X-Request-Id"] = planned.request_id
        request = self._client.build_request("POST", self._url + planned.path, content=planned.body, headers=headers)
        response = await self._client.send(request, stream=True)
        answer.status = response.status_code
        reader = AnswerReader(response.headers.get("content-type", "").encode())
        answer.is_stream = reader.is_stream
        try:
            if await _read(response, reader, planned, answer, began):
                answer.outcome = ABORTED
            else:
                answer.outcome = "error" if response.status_code >= 500 or reader.has_failed else "ok"
        finally:
            answer.usage = Usage(*reader.tokens())
            await response.aclose()


def new_answer() -> Answer:
    """Return an answer of which nothing has come, with a trace of its own."""
    return Answer(secrets.token_hex(16))


async def _read(response: httpx.Response, reader: AnswerReader, planned: Planned, answer: Answer, began: float) -> bool:
    """Read the answer; True: left after as many chunks as the recorded client."""
    async for part in response.aiter_raw():
        answer.body_bytes += len(part)
        answer.chunks_s += [time.perf_counter() - began] * reader.read(part, False)
        if planned.abort_chunks is not None and len(answer.chunks_s) >= planned.abort_chunks:
            return True
    answer.chunks_s += [time.perf_counter() - began] * reader.read(b"", True)
    return False


def _context(ca_file: str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=ca_file)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
