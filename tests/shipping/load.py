"""A modest load on the example server: whole answers, streams and refused requests, each with an id and a trace."""

from __future__ import annotations

import uuid
from typing import Any, Final

import httpx

from tests import servers

_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.01
"""Between two requests of a client: what is tested shares the processors."""
_REFUSED_EACH: Final = 10
_STREAMED_EACH: Final = 3


class Load(servers.Load):
    """Clients that ask the example, until asked to stop."""

    def __init__(self, server: servers.Server, clients: int = 3) -> None:
        super().__init__(server, "", clients)

    def _send(self, client: int) -> None:
        number = 0
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as connection:
            while not self._ending.wait(_PAUSE_S):
                number += 1
                status = self._ask(connection, number)
                assert status in (200, 422), status
                self.answered.add(f"{client}-{number}")

    @staticmethod
    def _ask(client: httpx.Client, number: int) -> int:
        ask: dict[str, Any] = {"messages": [{"role": "user", "content": "wörd " * 5}], "max_tokens": 5}
        ask["stream"] = number % _STREAMED_EACH == 0
        if number % _REFUSED_EACH == 0:
            ask["max_tokens"] = -1
        headers = {"x-request-id": f"r-{number}", "traceparent": f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01"}
        return client.post("/v1/chat/completions", json=ask, headers=headers).status_code
