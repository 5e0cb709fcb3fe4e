"""A replay from the first request to the last answer, with somebody who watches it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import IO, Final, NamedTuple

from inference_logging.prove.replay.client import Client
from inference_logging.prove.replay.player import Pace, Player, Result, State
from inference_logging.prove.replay.report import result_json
from inference_logging.prove.replay.schedule import Schedule

_SHOWN_EVERY_S: Final = 0.2


class Server(NamedTuple):
    """The server that is sent to; the parameters of ``Client``."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    ca_file: str | None = None


async def run(
    schedule: Schedule,
    server: Server,
    pace: Pace,
    *,
    requests_file: IO[str] | None = None,
    show: Callable[[State], object] | None = None,
) -> tuple[State, list[Result]]:
    """Replay a schedule; return how far it came, and the results in the order of their ends.

    ``requests_file`` gets a JSON line for each result as it comes. ``show`` is called several times a second.
    """
    results: list[Result] = []

    def keep(result: Result) -> None:
        if requests_file is not None:
            requests_file.write(json.dumps(result_json(result)) + "\n")
        results.append(result)

    client = Client(server.url, server.headers, timeout_s=server.timeout_s, ca_file=server.ca_file)
    player = Player(client, pace, keep)
    showing = asyncio.ensure_future(_keep_showing(show, player.state)) if show is not None else None
    try:
        await player.play(schedule)
    finally:
        if showing is not None:
            showing.cancel()
        await client.close()
    return player.state, results


async def _keep_showing(show: Callable[[State], object], state: State) -> None:
    while True:
        show(state)
        await asyncio.sleep(_SHOWN_EVERY_S)
