"""Keeps the index up to date, in a thread of its own: new segments and records, and index files of old ones."""

from __future__ import annotations

import threading
from typing import Any, Final

from inference_logging.read.table.table import Table

_BUDGET_S: Final = 0.2
"""Of one refresh, after which others have their turn."""
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
