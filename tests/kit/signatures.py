"""The types that signatures of tests name: those of ASGI, and of the fixtures that make configurations and loggers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from inference_logging import Config

if TYPE_CHECKING:
    from tests.kit.support import Recorded

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

Configure = Callable[..., Config]
"""The fixture `configure`: parameters make a configuration of this test's own directories."""

Recording: TypeAlias = "Callable[..., Recorded]"
"""The fixture `recording`: parameters make an open logger, behind which applications are served."""

Serve: TypeAlias = "Callable[..., tuple[Any, Recorded]]"
"""The fixture `serve`: the `execute` of a Triton model makes the model and its records."""
