"""The standard library's ways of logging requests, as ``vllm serve --middleware`` takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from loadtests.compare.baselines import RequestLog, StdlibLogging

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def _opened(mode: str) -> StdlibLogging:
    directory = Path(os.environ["INFERENCE_LOGGING_DIRECTORY"])
    directory.mkdir(parents=True, exist_ok=True)
    return StdlibLogging(mode, directory)


class File(RequestLog):
    """Write a line on the request path."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        super().__init__(app, _opened("stdlib-file").request)


class Queue(RequestLog):
    """Put a record on a queue, from which a thread writes."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        super().__init__(app, _opened("stdlib-queue").request)
