"""The owner of queue directories: the part of a configuration that says where records go and how they are redacted.

One listener writes the records of all processes of a queue directory. So that it writes each as its own process is
configured, the directory belongs to one such configuration: its text is there as ``configuration.yaml``, in the form of
a configuration file, and its fingerprint in the default name of the directory and in the headers of segments.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from inference_logging._native import (
    configuration_differences,
    configuration_fingerprint,
    configuration_of,
    leader_of,
    queues_of,
)
from inference_logging.record.settings import Values, settings

CONFIGURATION: Final = "configuration.yaml"
"""In each queue directory: the text of its configuration."""
SHARED_MEMORY: Final = Path("/dev/shm")
_TRIES: Final = 8
"""Names tried where other users have taken the first one."""


class Placed(Values, Protocol):
    """A configuration that says where queues are. `Config` names a default place with this module."""

    @property
    def service_name(self) -> str:
        """The part of the name that people know."""

    @property
    def queue_directory(self) -> Path | None:
        """Where queues are; None: in the default place."""

    @property
    def resolved_queue_directory(self) -> Path:
        """Where queues are."""


class Other(NamedTuple):
    """A queue directory of another configuration of the same service, with records that wait."""

    path: Path
    records: int
    is_alive: bool
    """Whether a process still produces there."""
    differences: str

    def sentence(self) -> str:
        """Say what waits where, why it is not written here, and what writes it."""
        file = self.path / CONFIGURATION
        records = "1 record" if self.records == 1 else f"{self.records} records"
        if self.is_alive:
            what, how = "waiting for a listener", f"listen --config {file} --queue-directory {self.path}"
        else:
            what, how = "left", f"recover --config {file} {self.path}"
        return (
            f"{records} of another configuration {what} in {self.path} ({self.differences}); "
            f"`inference-logging {how}` writes what its producers said, where they said"
        )


def text(config: Placed) -> str:
    """Return the part of ``config`` that says where records go and how they are redacted: a parameter a line."""
    return settings(config).configuration


def default_queue_directory(config: Placed) -> Path:
    """Return the queue directory of a configuration that names none: in memory, per user, service and fingerprint.

    A directory that this user owns is taken before one that does not exist yet, and one that another user made never.
    """
    places = _places(config)
    return next(filter(_is_own, places), None) or next(
        (path for path in places if not os.path.lexists(path)), places[0]
    )


def passed_over(config: Placed) -> str | None:
    """Return a sentence about the default queue directory if another user owns it."""
    if config.queue_directory is not None:
        return None
    first = _places(config)[0]
    if not os.path.lexists(first) or _is_own(first):
        return None
    return f"{first} {_whose(first)}; queues are in {config.resolved_queue_directory} instead"


def queue_directories(service_name: str) -> list[Path]:
    """Return the queue directories of a service that this user has by default, whatever their configurations are."""
    named = re.compile(rf"{re.escape(_name(service_name))}-[0-9a-f]{{12}}(-[2-9])?")
    found = []
    for root in dict.fromkeys(_roots()):
        try:
            entries = sorted(root.iterdir())
        except OSError:
            continue
        found += [entry for entry in entries if named.fullmatch(entry.name) and _is_own(entry)]
    return found


def of_others(config: Placed) -> Iterator[Other]:
    """Iterate over waiting records of other configurations of the service that no running listener writes."""
    own, mine = config.resolved_queue_directory, text(config)
    for path in _beside(config, own):
        try:
            noted = configuration_of(path)
            queues = queues_of(path) if leader_of(path) == "nobody" else []
        except (OSError, ValueError):
            continue
        records = sum(queue["in_queue"] for queue in queues)
        if noted is not None and noted != mine and records:
            is_alive = any(queue["producer"] != "nobody" for queue in queues)
            yield Other(path, records, is_alive, "; ".join(configuration_differences(noted, mine)))


def _beside(config: Placed, own: Path) -> Iterator[Path]:
    if config.queue_directory is None:
        yield from (path for path in queue_directories(config.service_name) if path != own)
    elif _is_own(own):
        named = re.compile(r"[0-9a-f]{12}(-[0-9]+)?")
        try:
            paths = sorted(own.iterdir())
        except OSError:  # somebody is removing it, which ends no listener
            return
        yield from (path for path in paths if named.fullmatch(path.name) and _is_own(path))


def _name(service_name: str) -> str:
    return f"inference_logging-{os.getuid()}-{service_name}"


def _places(config: Placed) -> list[Path]:
    name = f"{_name(config.service_name)}-{configuration_fingerprint(text(config))}"
    first, *others = _roots()
    numbered = (first / f"{name}-{number}" for number in range(2, 2 + _TRIES))
    return [first / name, *(root / name for root in others), *numbered]


def _roots() -> Iterator[Path]:
    """Iterate over where default queue directories can be.

    Shared memory comes first: the session's directory is removed at the last log-out, and a service has none.
    """
    yield SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session.startswith("/") and _is_own(Path(session)):
        yield Path(session)


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _whose(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return "is not there any more"
    if found.st_uid == os.geteuid():
        return "is no directory of mode 0700"
    try:
        name = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        name = "?"
    return f"belongs to {name} (uid {found.st_uid})"
