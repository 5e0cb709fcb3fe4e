"""Names of requests, each given once: a test that looks for its record by a name must not find another request's."""

from __future__ import annotations


class Names:
    """The names that the requests of one server have so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """Return ``name``; refuse one that an earlier request has."""
        assert name not in self._taken, f"two requests of one server are named {name}"
        self._taken.add(name)
        return name
