"""Names of requests, each for one test: a test that looks for its record by a name must not find another test's."""

from __future__ import annotations

import os


class Names:
    """The names that the requests of one server have so far, and the test that each is of."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        self._times: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return ``name``; refuse one that another test has. A test that is run again may take its own again."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        owner = self._taken.setdefault(name, test)
        assert owner == test, f"a request of {owner} has the name {name}"
        self._times[name] = self.times(name) + 1
        return name

    def times(self, name: str) -> int:
        """Return how many requests have this name: one, or two of a test that is run again."""
        return self._times.get(name, 0)
