"""The books of a server that has ended, as its operator checks them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from inference_logging import Config
from inference_logging.read.export.statement import Books
from tests.kit.command_line import run
from tests.kit.support import read_records


@pytest.fixture
def verify_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an export's `verify` run in the test's process: many times as quick on a busy machine."""

    def look(arguments: Sequence[str]) -> Books:
        return Books(json.loads(run("verify", "--json", *arguments).out))

    monkeypatch.setattr(Books, "look", look)


def variables(config: Config) -> dict[str, str]:
    """Return the environment variables that make this configuration."""
    given = {name: getattr(config, name) for name in config.model_fields_set}
    written = {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in given.items()}
    return {f"INFERENCE_LOGGING_{name.upper()}": value for name, value in written.items()}


def assert_books_balance(config: Config) -> None:
    """Check that nothing waits, that nothing is missing, and that no request has two terminal records."""
    queues, segments = str(config.resolved_queue_directory), str(config.directory)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables(config).items():
            patch.setenv(name, value)
        recovered = run("recover", queues, "--json")
    assert recovered.code == 0, recovered
    verified = run("verify", segments, "--queue-directory", queues)
    assert verified.code == 0, verified
    counted = Counter(record["request_id"] for record in read_records(config.directory, "request"))
    assert set(counted.values()) <= {1}, counted.most_common(3)
