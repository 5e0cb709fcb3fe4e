"""Who may ask: the holder of the token, from a page of this server, under a name that only this machine has.

A page of another site can make a browser send requests to this port, and can make its own name point to this machine
(DNS rebinding). The token keeps out who does not know the address, the check of Host keeps out other names, and the
check of Origin and Sec-Fetch-Site keeps out pages of other sites that have learned the address.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
            b"img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),  # links to other sites do not carry the token there
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""Of every answer."""

TOKEN_BYTES: Final = 32

_OWN_PAGES: Final = (b"none", b"same-origin")
"""Sec-Fetch-Site of what the user has typed, and of this server's own pages."""


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hosts(port: int, *names: str) -> frozenset[bytes]:
    """Return the values of Host under which the server answers: the names of this machine's loopback."""
    known = {"127.0.0.1", "localhost", "[::1]", *names}
    named = {f"{name}:{port}" for name in known} | (known if port == 80 else set())
    return frozenset(name.lower().encode("ascii") for name in named)


class Guard:
    """Lets through to ``app`` what may ask, without the token in its path. Every answer gets ``HEADERS``."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[bytes]) -> None:
        self._app, self._token = app, token.encode("ascii")
        self._hosts = frozenset(hosts)
        self._origins = frozenset(b"http://" + host for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif (refusal := self._refusal(scope)) is not None:
            await _answer(send, refusal)
        elif scope["path"] == f"/{self._token.decode()}":
            await _answer(send, 308, (b"location", b"/" + self._token + b"/"))
        else:
            path = scope["path"][len(self._token) + 1 :]
            await self._app({**scope, "path": path, "raw_path": path.encode(), "root_path": ""}, receive, _adds(send))

    def _refusal(self, scope: Scope) -> int | None:
        """Return the status of a request that is refused; None for one that is answered."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if headers.get(b"host", b"").lower() not in self._hosts:
            return 421
        # In bytes: compare_digest takes as long for a wrong token as for the right one.
        given = scope["path"].encode("utf-8", "surrogatepass").split(b"/", 2)[1:2] or [b""]
        if not scope["path"].startswith("/") or not secrets.compare_digest(given[0], self._token):
            return 403
        if scope["method"] not in ("GET", "HEAD"):
            return 405
        is_page = scope["path"] in (f"/{self._token.decode()}", f"/{self._token.decode()}/")
        return None if self._is_own(headers, is_page=is_page) else 403

    def _is_own(self, headers: dict[bytes, bytes], *, is_page: bool) -> bool:
        """Return whether a request comes from this server's pages, or from the user.

        A link may be followed from anywhere, such as the page of a terminal: it shows the page to the user alone.
        """
        if (origin := headers.get(b"origin")) is not None and origin.lower() not in self._origins:
            return False
        site = headers.get(b"sec-fetch-site", b"none")
        is_link = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        return site in _OWN_PAGES or (is_page and is_link)


async def _answer(send: Send, status: int, *more: tuple[bytes, bytes]) -> None:
    """Answer with an empty page."""
    headers = [*HEADERS, *more, (b"content-length", b"0")]
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _adds(send: Send) -> Send:
    """Return ``send`` with the headers that every answer has, in place of those of the same name."""
    names = {name for name, _ in HEADERS}

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return send_with_headers
