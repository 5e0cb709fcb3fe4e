"""The fixture ``inference_logging_records``: name this module in ``pytest_plugins`` of the root ``conftest.py``.

Not an entry point: pytest would then import this package, and pydantic with it, in every run of every project in an
environment that merely has it installed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference_logging.testing import Records, capture_records

__all__ = ["inference_logging_records"]


@pytest.fixture
def inference_logging_records() -> Iterator[Records]:
    """Capture what is recorded during the test."""
    with capture_records() as records:
        yield records
