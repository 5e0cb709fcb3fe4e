"""What every test shares: an environment without our variables, and properties without deadlines."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# How long one example takes says nothing on a busy machine, so no deadline; the same examples in each CI run.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away INFERENCE_LOGGING_… variables, so that a developer's own settings don't change a test."""
    for name in [name for name in os.environ if name.startswith("INFERENCE_LOGGING_")]:
        monkeypatch.delenv(name)
