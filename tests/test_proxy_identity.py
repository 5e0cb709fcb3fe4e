"""The proxy records whose request it was: headers of requests and of handshakes, members of bodies, and no raw key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from websockets.sync.server import serve

from tests.identity import BODY, HEADERS, KEY, SECRET, everything
from tests.proxies import HELLO, Proxy, Start, answers, raw

pytestmark = pytest.mark.servers

SENT = {"X-Tenant": "acme", "x-team": "search", "x-other": "no", "Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def identifying(proxying: Start, tmp_path: Path) -> Callable[..., Proxy]:
    """Start proxies that record headers, some of them as hashes."""
    (tmp_path / "key").write_bytes(KEY)
    return lambda to, **parameters: proxying(
        to, record_headers=HEADERS, capture_hash_key_file=tmp_path / "key", **parameters
    )


@pytest.fixture
def closing() -> Iterator[int]:
    """Serve WebSockets that are closed at once, and return the port."""
    with serve(lambda connection: connection.close(), "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


def assert_identified(proxy: Proxy, record: dict[str, Any]) -> None:
    assert (record["tenant.id"], record["http.request.header.x-team"]) == ("acme", "search")
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in record)
    assert SECRET.encode() not in everything(proxy.config.directory)


def test_a_request_has_the_headers_and_members_that_are_asked_for(identifying: Callable[..., Proxy]) -> None:
    with raw(answers(HELLO)) as server:
        proxy = identifying(server.port, record_body_fields=["user"])
        httpx.post(f"{proxy.url}/v1/chat/completions", json=BODY, headers=SENT, timeout=60)
        record = proxy.record()
    assert_identified(proxy, record)
    assert record["openai.request.user"] == "user-7"
    assert record["gen_ai.request.model"] == "m"


def test_a_connection_has_the_headers_of_its_handshake(identifying: Callable[..., Proxy], closing: int) -> None:
    proxy = identifying(closing)
    with connect(f"ws://127.0.0.1:{proxy.port}/", additional_headers=SENT) as client:
        assert list(client) == []
    assert_identified(proxy, proxy.record("websocket.connection"))


def test_without_the_parameter_nothing_of_them_is_recorded(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        httpx.get(proxy.url, headers=SENT, timeout=60)
        record = proxy.record()
    assert not {"tenant.id", "api_key.hash"} & set(record)
