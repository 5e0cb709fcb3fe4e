"""Arrival traces: when requests come and how long they are, read from a CSV in the Azure LLM 2023 format.

An open loop needs arrivals that do not wait for the server: real ones come in bursts, which a fixed number of users
in a closed loop smooths away. The format is `TIMESTAMP,ContextTokens,GeneratedTokens`, one line per request, as in the
Azure LLM inference traces of 2023 (a chat hour and a code hour). Where they are not at hand, `generate` makes a trace
with the same columns and a like shape.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace: when it comes (seconds from the first one) and its two lengths."""

    at_s: float
    context_tokens: int
    generated_tokens: int


def find(wanted: Path | None, out: Path) -> Path:
    """Return the trace to use: the one asked for, else one generated into `out`.

    Raises ``FileNotFoundError`` if the one asked for does not exist, rather than measuring something else.
    """
    if wanted is not None:
        if not wanted.is_file():
            raise FileNotFoundError(f"--trace {wanted}: there is no such file")
        return wanted
    generated = out / "arrivals.csv"
    if not generated.is_file():
        generate(generated)
    return generated


def read(path: Path) -> list[Arrival]:
    """Return the arrivals of a trace in order of time, the first one at 0 s.

    Raises ``ValueError``, naming file and line, where the format is another one.
    """
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the first line must be {','.join(COLUMNS)}, not {rows.fieldnames}")
        arrivals = sorted((_arrival(path, rows.line_num, row) for row in rows), key=lambda a: a.at_s)
    if not arrivals:
        raise ValueError(f"{path}: there are no arrivals in it")
    return [replace(arrival, at_s=arrival.at_s - arrivals[0].at_s) for arrival in arrivals]


def fit(arrivals: list[Arrival], *, rate: float, seconds: float, max_tokens: int) -> list[Arrival]:
    """Return the head of a trace, scaled in time to `rate` arrivals per second on average and cut after `seconds`.

    Time is stretched by one factor, so that bursts stay bursts; answers are capped at `max_tokens`, so that a run ends.
    The head is chosen by count (``rate * seconds``), so that the average holds for the part that is played.
    """
    head = arrivals[: max(1, round(rate * seconds))]
    stretch = seconds / (head[-1].at_s or 1.0) if len(head) > 1 else 0.0
    return [
        replace(arrival, at_s=arrival.at_s * stretch, generated_tokens=min(arrival.generated_tokens, max_tokens))
        for arrival in head
    ]


def generate(path: Path, *, count: int = 5000, seed: int = 2023) -> None:
    """Write a trace with bursty gaps and long-tailed lengths, the same one for the same `seed`.

    Gaps are log-normal (a coefficient of variation above 1, unlike a Poisson process), lengths are log-normal with
    medians close to those of the chat hour: about 1,000 tokens in, about 130 out.
    """
    dice = random.Random(seed)
    at = datetime(2023, 11, 16, 18, 15, 0)  # noqa: DTZ001  (the format has no zone)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as lines:
        rows = csv.writer(lines)
        rows.writerow(COLUMNS)
        for _ in range(count):
            at += timedelta(seconds=dice.lognormvariate(-2.3, 1.1))
            rows.writerow((f"{at:%Y-%m-%d %H:%M:%S.%f}0", _length(dice, 1000, 0.9), _length(dice, 130, 0.8)))


def _arrival(path: Path, line: int, row: dict[str, str]) -> Arrival:
    try:
        return Arrival(_seconds(row[COLUMNS[0]]), int(row[COLUMNS[1]]), max(1, int(row[COLUMNS[2]])))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}, line {line}: not an arrival: {row}") from error


def _seconds(timestamp: str) -> float:
    """Return a timestamp as seconds; its seven decimals are one more than ``datetime`` reads in Python 3.10."""
    whole, _, fraction = timestamp.partition(".")
    return (datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds() + float(f"0.{fraction or 0}")  # noqa: DTZ001


def _length(dice: random.Random, median: float, spread: float) -> int:
    return max(1, min(8192, round(median * dice.lognormvariate(0, spread))))
