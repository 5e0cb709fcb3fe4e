"""`inference-logging ship` as a process that is killed and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from inference_logging import Config
from tests.kit.books import variables
from tests.kit.servers import Load
from tests.kit.support import wait_until
from tests.ship.programs import Program, scraped

_MAIN = "import sys; from inference_logging.cli.main import run; sys.exit(run(sys.argv[1:]))"
SHIP = (sys.executable, "-c", _MAIN, "ship", "--metrics-address", "127.0.0.1")
"""At the priority of the tests: at nice 19, which the program takes, it waits for all that runs beside it."""
QUICK = {"ship_batch_records": "50", "ship_interval_s": "0.05", "ship_timeout_s": "2", "ship_retry_s": "0.5"}
"""Many small batches, so that a kill finds one under way; a destination that is back is found soon."""


class Ship:
    """A shipper of the segments of ``config``, or of each directory of a form; ``parameters`` are further ones."""

    def __init__(self, config: Config, to: str, *, each: Any = (), **parameters: Any) -> None:
        self.kills = 0
        self._each: Sequence[str] = each
        self.lines: list[str] = []
        self.parameters = {**QUICK, "ship_to": to, "drain_deadline_s": "300", **parameters}
        self._variables = variables(config)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it; what it says is in ``lines``."""
        self.lines = []
        given = {f"INFERENCE_LOGGING_{name.upper()}": str(value) for name, value in self.parameters.items()}
        self._process = subprocess.Popen(
            [*SHIP, *self._each, "--metrics-port", "0"],
            env={**os.environ, **self._variables, **given},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, self.lines))
        self._reader.start()
        self._port = int(self.wait_for(r"/metrics on port (\d+)")[1])

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stderr is not None
        lines.extend(process.stderr)

    def wait_for(self, said: str) -> re.Match[str]:
        """Wait until it says something that the pattern finds."""

        def found() -> re.Match[str] | None:
            match = re.search(said, "".join(self.lines))
            assert match or self.is_running(), f"it ended: {self.lines}"
            return match

        match = wait_until(found, f"the shipper to say {said!r}")
        assert isinstance(match, re.Match)
        return match

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels; 0 without any."""
        return scraped(self._port, f"inference_logging_ship_{name}", **labels)

    def wait_until_shipped(self, more: int) -> None:
        """Wait until at least so many more records are acknowledged."""
        wanted = self.metric("records_total") + more
        wait_until(lambda: self.metric("records_total") >= wanted, f"{wanted} records to be acknowledged")

    def wait_until_failing(self) -> None:
        """Wait until one more sending has failed."""
        seen = self.metric("errors_total")
        wait_until(lambda: self.metric("errors_total") > seen, "a sending to fail")

    def is_running(self) -> bool:
        """Say whether it is there."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.is_running(), self.lines
        self.kills += 1
        self.end()

    def restart(self) -> None:
        """End it by SIGKILL, and start the next one."""
        self.kill()
        self.start()

    def outlive(self, destination: Program, load: Load) -> None:
        """See the destination killed, be killed while it is away, and come back before it does."""
        destination.kill()
        load.wait_for(50)
        self.wait_until_failing()
        self.restart()
        destination.start()

    def stop(self) -> int:
        """Let it ship what is left, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(360)
        self.end()
        return code

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            if self._process.stderr is not None:
                self._process.stderr.close()
