"""The ways of logging that are compared, each as its own documentation recommends it for production.

A library is imported when a peer is opened and not before. What a result shows as a peer's settings is the source of
the function that made them.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from inference_logging.prove.bench.record import Call


@dataclass(frozen=True)
class Place:
    """Where a peer's files go: what arrived is read in ``files``; ``memory`` is for what is kept in tmpfs."""

    files: Path
    memory: Path


def nothing() -> None:
    """Wait for nothing: what a call has made is written and flushed when it returns."""


@dataclass
class Opened:
    """A peer that takes records.

    ``settle`` waits until everything so far is in the file, where a peer can do that while it goes on. ``drain`` waits
    for the same at the end. ``dropped`` is the peer's own count of records that it refused or dropped without saying
    so to the caller, from the opening on.
    """

    call: Call
    drain: Callable[[], object]
    filtered: Call | None = None
    settle: Callable[[], object] | None = None
    dropped: Callable[[], int] | None = None


@dataclass(frozen=True)
class Peer:
    """A way of logging: ``opened`` opens it with the text of its records.

    ``settings`` is the function that configures it. ``is_json`` is false for a peer whose lines have another form.
    """

    name: str
    title: str
    library: str
    opened: Callable[[Place, str], AbstractContextManager[Opened]]
    settings: Callable[..., Any]
    modules: tuple[tuple[str, str], ...] = ()
    """Those it needs, by the names of their distributions."""
    ours: bool = False
    writes: bool = True
    is_json: bool = True

    def settings_text(self) -> str:
        """Return the settings as they stand in the source."""
        return textwrap.dedent(inspect.getsource(self.settings))


OURS: Final = "ours-event"
"""The peer that most goals are about."""

_MODULES: Final = {
    "standard": (
        "empty", "empty-again", "stdlib-null", "stdlib-sync", "stdlib-fsync", "stdlib-queue", "stdlib-simple-queue",
    ),
    "others": (
        "structlog", "loguru", "loguru-enqueue", "picologging", "fapilog", "fapilog-production", "opentelemetry",
        "uvicorn-access",
    ),
    "ours": ("ours-event", "ours-get-logger", "ours-handler", "ours-native-logger", "ours-audit"),
}  # fmt: skip
NAMES: Final = tuple(chain.from_iterable(_MODULES.values()))
"""All peers, in the order in which they are shown."""


def peer(name: str) -> Peer:
    """Return a peer by its name; no other library is imported by this."""
    module = next(module for module, names in _MODULES.items() if name in names)
    peers: tuple[Peer, ...] = import_module(f"{__name__}.{module}").PEERS
    return next(found for found in peers if found.name == name)


def peers(names: tuple[str, ...] = NAMES) -> Iterator[Peer]:
    """Iterate over peers in the order of ``NAMES``."""
    return (peer(name) for name in NAMES if name in names)
