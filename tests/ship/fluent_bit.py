"""A real Fluent Bit with the file that the chart renders: only paths of the pod and its own port are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.chart.chart import render
from tests.kit.servers import free_port
from tests.kit.support import wait_until
from tests.ship.programs import Program, scraped
from tests.tools.tools import tool

VOLUME: Final = "/var/log/inference-logging"
"""The pod's, which has the segments in a directory of the same name as those of the tests."""


class FluentBit(Program):
    """The program with its state in ``directory``, which has ``segments``."""

    def __init__(self, directory: Path, destination: str, endpoint: str, **given: Any) -> None:
        binary, self.port = tool("fluent-bit"), free_port()
        destinations = {"type": destination, "endpoints": [endpoint], **given}
        text = render(shipper={"type": "fluent-bit"}, destination=destinations).file("fluent-bit.yaml")
        changes = {VOLUME: str(directory), "0.0.0.0": "127.0.0.1", "http_port: 2020": f"http_port: {self.port}"}
        for of_pod, of_test in changes.items():
            assert of_pod in text, of_pod
            text = text.replace(of_pod, of_test)
        file = directory / "fluent-bit.yaml"
        file.write_text(text, encoding="utf-8")
        environment = {"POD_NAME": "pod", "DESTINATION_TOKEN": "key"}
        super().__init__([binary, f"--config={file}"], directory / "fluent-bit.log", self._answers, environment)

    def _answers(self) -> bool:
        return self._count() is not None

    def delivered(self) -> float:
        """Return how many records the destination has taken in this life of it."""
        (count,) = wait_until(self._count, "Fluent Bit's metrics")
        return float(count)

    def _count(self) -> tuple[float] | None:
        try:
            return (scraped(self.port, "fluentbit_output_proc_records_total", "/api/v2/metrics/prometheus"),)
        except OSError:  # while its numbers change, the page is not found
            return None

    def wait_until_delivered(self, more: int) -> None:
        """Wait until at least so many more are delivered."""
        wanted = self.delivered() + more
        wait_until(lambda: self.delivered() >= wanted, f"{wanted} records to be delivered", 90)

    def restart(self) -> None:
        """Kill it and start the next one."""
        self.kill()
        self.start()
