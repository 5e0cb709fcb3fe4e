"""What a shipper in a test works with: sources, a destination that fails as it is asked to, a stop, a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inference_logging.ship import Source, Sources
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.source import Batch


@dataclass
class Limits:
    """The parameters of a shipper."""

    ship_batch_records: int = 2
    ship_batch_bytes: int = 1 << 20
    ship_interval_s: float = 1.0
    ship_retry_s: float = 30.0


@dataclass
class Destination:
    """Takes everything, after it has done what `answers` say."""

    answers: list[Callable[[Sequence[Line]], Sent]] = field(default_factory=list)
    got: list[int] = field(default_factory=list)
    poisons: set[int] = field(default_factory=set)
    """Records that it cannot convert."""

    def convert(self, line: Line) -> bytes:
        if line.record["n"] in self.poisons:
            raise RecursionError(f"record {line.record['n']}")
        return line.raw

    def send(self, sent: Sequence[Line]) -> Sent:
        for line in sent:
            self.convert(line)
        answer = self.answers.pop(0)(sent) if self.answers else Sent()
        failed = {line.record["n"] for line in answer.failed}
        self.got += [line.record["n"] for line in sent if line.record["n"] not in failed]
        return answer

    def close(self) -> None:
        """Do nothing."""


def down(sent: Sequence[Line]) -> Sent:
    return Sent(sent, "nobody there", "ConnectError")


def half(sent: Sequence[Line]) -> Sent:
    return Sent(sent[1:], "one is enough", "slow", retry_after_s=7.0)


def refuse_first(sent: Sequence[Line]) -> Sent:
    return Sent(refused={"413": 1})


def take_first(sent: Sequence[Line]) -> Sent:
    return Sent(left_out=len(sent) - 1)


def refuse_more_than_there_are(sent: Sequence[Line]) -> Sent:
    return Sent(sent[1:], "one signal fails", "503", refused={"400": len(sent)})


class Stop:
    """Is set at one of its waits; what it was asked to wait is kept."""

    def __init__(self, at_wait: int = 1, then: Callable[[], object] = lambda: None) -> None:
        self.waited: list[float] = []
        self._at, self._then = at_wait, then

    def wait(self, timeout: float, /) -> bool:
        self.waited.append(timeout)
        if len(self.waited) == self._at:
            self._then()
        return self.is_set()

    def is_set(self) -> bool:
        return len(self.waited) >= self._at


class Clock:
    """Goes on by what is slept."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


EVERYTHING = (1_000_000, 1 << 40)


@contextmanager
def source(directory: Path, ship_name: str = "test", *, once: bool = False) -> Iterator[Source]:
    opened = Source(directory, ship_name, once=once)
    try:
        yield opened
    finally:
        opened.close()


def numbers(batch: Batch) -> list[int]:
    return [line.record["n"] for line in batch.lines]


def ship(opened: Source | Sources, most_records: int = 1_000_000) -> list[int]:
    """Read and acknowledge until nothing comes."""
    found: list[int] = []
    while (batch := opened.read(most_records, 1 << 40)).stands:
        opened.plan(batch)
        opened.acknowledge(batch)
        found += numbers(batch)
    return found
