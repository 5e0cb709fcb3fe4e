"""Servers of a real vLLM that several tests share: a start takes half a minute."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.integrations.vllm_server import WRITING, VllmServer, serving
from tests.kit.books import assert_books_balance
from tests.kit.proxies import Proxy
from tests.kit.signatures import Configure


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve text generation; at its end all books must balance."""
    with serving(tmp_path_factory.mktemp("vllm"), *WRITING) as server:
        yield server
    assert_books_balance(server.config)


@pytest.fixture
def in_front(listener_binary: Path, configure: Configure) -> Iterator[Callable[[int], Proxy]]:
    """Start a proxy in front of a port; with the test it ends in order, and its books must balance."""
    started: list[Proxy] = []

    def start(to: int) -> Proxy:
        started.append(Proxy(listener_binary, configure(flush_interval_s=0.05), to))
        return started[-1]

    yield start
    try:
        codes = [proxy.stop() for proxy in started]
    finally:
        for proxy in started:
            proxy.end()
    assert codes == [0] * len(started)
    for proxy in started:
        assert_books_balance(proxy.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what a vLLM said last that died: its clients only see a 502 or a refused connection."""
    report = yield
    if report.failed:
        words = [server.last_words() for server in VllmServer.open]
        report.sections += [("the last words of vLLM", text) for text in words if text]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests last: a server that they share stays until the end, and no other test should run beside it."""
    items.sort(key=lambda item: item.get_closest_marker("vllm") is not None)
