"""What works on the directories of many pods within one process.

    python -m loadtests.fleet.fleet_shipping ship DESTINATION PATTERN STATE   until SIGTERM, then what is left
    python -m loadtests.fleet.fleet_shipping once DESTINATION PATTERN STATE   what is there
    python -m loadtests.fleet.fleet_shipping recover VOLUME…                  queues of pods that do not return

``ship`` is `inference-logging ship --each PATTERN --state STATE`. It prints ``ready`` once it has found what is there,
and at its end how many records it has sent and in how many batches.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inference_logging import Config
from inference_logging.cli import native
from inference_logging.cli.ship import Stop
from inference_logging.ship import Shipper
from inference_logging.ship.destinations import open_destination
from inference_logging.ship.directories import Pattern
from inference_logging.ship.line import Destination, Line, Sent
from inference_logging.ship.offsets import State
from inference_logging.ship.sources import EachSource
from loadtests.fleet.fleet_pods import SERVICE

DRAIN_S: Final = 300.0


class Counting:
    """A destination that counts its batches."""

    def __init__(self, destination: Destination) -> None:
        """Keep it."""
        self._destination, self.batches = destination, 0

    def send(self, lines: Sequence[Line]) -> Sent:
        """Pass them on."""
        self.batches += 1
        return self._destination.send(lines)

    def convert(self, line: Line) -> object:
        """Let the destination do it."""
        return self._destination.convert(line)

    def close(self) -> None:
        """Close it."""
        self._destination.close()


def ship(to: str, pattern: str, state: str, *, once: bool) -> bool:
    """Ship what is in the directories of a pattern; return whether all of that has arrived."""
    config = Config(ship_to=to)
    source = EachSource(Pattern.parse(pattern), State(Path(state), config.resolved_ship_name), once=once)
    counting = Counting(open_destination(config))
    with Stop() as stop, contextlib.closing(Shipper(source, counting, config)) as shipper:
        print("ready", flush=True)
        arrived = shipper.run(stop, once=once, drain_s=DRAIN_S)
        refused = shipper.refused.total()
        print(json.dumps({"records": shipper.records, "batches": counting.batches, "refused": refused}), flush=True)
    return arrived and not refused


def recover(volumes: Sequence[Path]) -> bool:
    """Write what is left in the queues of these volumes, each to its own segments; return whether that went well."""
    codes = set()
    for volume in volumes:
        config = Config(service_name=SERVICE, directory=volume / "logs", queue_directory=volume / "queues")
        codes.add(native.run(["recover"], config))
    return codes <= {0}


def main() -> None:
    """Do what the command line says."""
    word, *given = sys.argv[1:]
    done = recover([Path(one) for one in given]) if word == "recover" else ship(*given, once=word == "once")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
