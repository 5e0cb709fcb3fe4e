"""Servers of a real vLLM that several tests share: a start takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.books import assert_books_balance
from tests.integrations.vllm_server import WRITING, VllmServer, serving


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve text generation; at its end all books must balance."""
    with serving(tmp_path_factory.mktemp("vllm"), *WRITING) as server:
        yield server
    assert_books_balance(server.config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests last: a server that they share stays until the end, and no other test should run beside it."""
    items.sort(key=lambda item: item.get_closest_marker("vllm") is not None)
