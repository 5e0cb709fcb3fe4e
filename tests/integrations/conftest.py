"""Servers of a real vLLM that several tests share: a start takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.vllm_server import VllmServer, assert_books_balance, serving

FLAGS = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-scale-out"),
    # A model that knows nothing would write spaces without end.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve text generation; at its end all books must balance."""
    with serving(tmp_path_factory.mktemp("vllm"), *FLAGS) as server:
        yield server
    assert_books_balance(server)
