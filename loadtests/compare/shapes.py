"""Load shapes: the open loop, which plays an arrival trace and ends when its last answer has come.

A closed loop needs no shape: `--users` of Locust is one.
"""

from __future__ import annotations

from locust import LoadTestShape, User

from loadtests.compare.arrivals import Arrival


class OpenLoop(LoadTestShape):
    """Keep one player alive until it has played the whole trace.

    The player starts a request per arrival, whether or not earlier ones have been answered. Locust's own way (a user
    per arrival) would round arrivals to the second, which is the pace of ``tick``.
    """

    abstract = False

    def __init__(self, arrivals: list[Arrival], player: type[User]) -> None:
        """Take the `arrivals` to play and the user class that plays them."""
        super().__init__()
        self.arrivals = arrivals
        self.player = player
        self.finished = False

    def tick(self) -> tuple[int, float, list[type[User]] | None] | None:
        """Return one player, or None (which ends the run) once the player has set `finished`."""
        return None if self.finished else (1, 1.0, [self.player])
