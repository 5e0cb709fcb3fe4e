"""Threads of the view: a few that work for requests, so that the event loop never waits, and one for the index."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from starlette.requests import Request

from inference_logging.read.table.table import Table

Result = TypeVar("Result")

_MOST_WAITING: Final = 64


class BusyError(Exception):
    """Too many requests wait already."""


class GoneError(Exception):
    """The client has left: nobody reads the answer."""


class Workers:
    """A few threads. Call from the event loop."""

    def __init__(self, name: str, threads: int, most_waiting: int = _MOST_WAITING) -> None:
        """Start no thread before the first request."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"inference-logging-view-{name}")
        self._most = threads + most_waiting
        self._under_way = 0

    async def run(self, request: Request, work: Callable[[threading.Event], Result]) -> Result:
        """Return what ``work`` returns; its argument is set once the client has left, so that it can give up.

        Raises ``BusyError`` where too many wait, ``GoneError`` once the client has left, and what ``work`` raises.
        """
        if self._under_way >= self._most:
            raise BusyError
        given_up = threading.Event()
        self._under_way += 1
        future: asyncio.Future[Result] = asyncio.get_running_loop().run_in_executor(self._pool, work, given_up)
        future.add_done_callback(self._ended)
        left = asyncio.ensure_future(_left(request))
        either: set[asyncio.Future[Any]] = {future, left}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            raise GoneError
        finally:
            given_up.set()
            left.cancel()
            future.cancel()  # what waits for a thread will not run

    def _ended(self, future: asyncio.Future[Result]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # of a client that has left: asked for, so that asyncio does not complain

    def close(self) -> None:
        """Take nothing more; what runs goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def is_idle(self) -> bool:
        """Return whether no thread runs any more, after ``close``."""
        return not any(thread.is_alive() for thread in self._pool._threads)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_BUDGET_S: Final = 0.2
"""A refresh takes at most this long; then others have their turn."""
_PAUSE_S: Final = 0.2
"""Between two looks, once all is indexed."""
_AFTER_ERROR_S: Final = 2.0


class Refresher:
    """Refreshes an index until it is closed."""

    def __init__(self, index: Table) -> None:
        """Prepare; ``start`` begins."""
        self._index = index
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inference-logging-view-index", daemon=True)
        self.progress: dict[str, Any] = {"done": False, "problems": []}
        """The answer of the last refresh."""
        self.looks = 0
        """How many refreshes there were."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, wait_s: float = 0.0) -> bool:
        """Stop, and wait so long for the end; return whether it has ended."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                self.progress = self._index.refresh(_BUDGET_S)
                pause_s = _PAUSE_S if self.progress.get("done", True) else 0.0
            except Exception as error:  # noqa: BLE001 - the page shows it, and the next look may go well
                self.progress = {**self.progress, "problems": [f"the index can't be refreshed: {error}"]}
                pause_s = _AFTER_ERROR_S
            self.looks += 1
