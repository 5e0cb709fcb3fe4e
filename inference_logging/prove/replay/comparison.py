"""The recorded run and the replayed one beside each other: outcomes, lengths, and times with intervals.

Times are compared in pairs, the recorded and the replayed time of one request, so a mix of long and short requests
cancels. Requests that were near each other met the same load: they are taken together in blocks by their arrival, and
the interval is that of the blocks' ratios. Recorded times are those of the server, replayed ones those of this client:
they have the network in them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from inference_logging.prove.replay.client import NOT_SENT, UNFINISHED
from inference_logging.prove.replay.player import Result
from inference_logging.read.stats.interval import LEAST_BLOCKS, Interval, quantile, ratio

SHARES: Final = (0.5, 0.9, 0.99)
_MOST_BLOCKS: Final = 200


class Pair(NamedTuple):
    """One figure of a request: recorded, and replayed."""

    recorded: float
    replayed: float


class Outcome(NamedTuple):
    """How many requests ended in one way when recorded, and in one way now: outcome, and status where one came."""

    recorded: str
    replayed: str
    requests: int


class Length(NamedTuple):
    """A count of each request, in those that have it in both runs."""

    name: str
    requests: int
    equal: int
    recorded: int
    replayed: int


class Times(NamedTuple):
    """A time in seconds of each request, in those that have it in both runs; ``ratio``: replayed ÷ recorded."""

    name: str
    pairs: tuple[Pair, ...]
    ratio: Interval | None
    """None: too few pairs for an interval."""

    def quantiles(self, arm: int) -> list[float]:
        """Return the quantiles ``SHARES`` of one arm: 0 recorded, 1 replayed."""
        return quantiles([pair[arm] for pair in self.pairs])


class Comparison(NamedTuple):
    """What was found in all requests that ended."""

    outcomes: tuple[Outcome, ...]
    lengths: tuple[Length, ...]
    times: tuple[Times, ...]

    @property
    def is_made(self) -> bool:
        """Whether any request could be compared."""
        return any(length.requests for length in self.lengths) or any(times.pairs for times in self.times)


def quantiles(values: Sequence[float]) -> list[float]:
    """Return the quantiles ``SHARES`` of at least one value, each one of the values."""
    ordered = sorted(values)
    return [quantile(ordered, share) for share in SHARES]


def compare(results: Sequence[Result]) -> Comparison:
    """Compare the results with what was recorded of the same requests."""
    ordered = sorted(results, key=lambda result: result.intended_s)
    ended = [result for result in ordered if result.answer.outcome not in (NOT_SENT, UNFINISHED)]
    found = Counter((_recorded_outcome(result), _replayed_outcome(result)) for result in ordered)
    outcomes = tuple(Outcome(*ways, requests) for ways, requests in found.most_common())
    return Comparison(
        outcomes,
        tuple(_length(name, [pair for result in ended if (pair := of(result))]) for name, of in _LENGTHS),
        tuple(_times(name, [pair for result in ended if (pair := of(result))]) for name, of in _TIMES),
    )


def _recorded_outcome(result: Result) -> str:
    recorded = result.planned.recorded
    return _outcome(recorded.outcome or "unknown", recorded.status)


def _replayed_outcome(result: Result) -> str:
    return _outcome(result.answer.outcome, result.answer.status)


def _outcome(outcome: str, status: int | None) -> str:
    return outcome if status is None else f"{outcome} {status}"


def _is_whole(result: Result) -> bool:
    return result.answer.outcome == result.planned.recorded.outcome == "ok" and _is_served(result)


def _input_tokens(result: Result) -> Pair | None:
    return _pair(result.planned.recorded.input_tokens, result.answer.usage.input)


def _output_tokens(result: Result) -> Pair | None:
    return _pair(result.planned.recorded.output_tokens, result.answer.usage.output) if _is_whole(result) else None


def _chunks(result: Result) -> Pair | None:
    if not result.answer.is_stream or result.answer.outcome != result.planned.recorded.outcome:
        return None
    return _pair(result.planned.recorded.chunks, len(result.answer.chunks_s))


def _first_chunk(result: Result) -> Pair | None:
    answer = result.answer
    first_s = answer.chunks_s[0] if answer.is_stream and answer.chunks_s else None
    return _positive(_pair(result.planned.recorded.first_chunk_s, first_s)) if _is_served(result) else None


def _is_served(result: Result) -> bool:
    """Whether both times are those of an answer, and not of a refusal."""
    recorded, answer = result.planned.recorded, result.answer
    return answer.outcome == recorded.outcome and max(answer.status or 0, recorded.status or 0) < 400


def _per_token(result: Result) -> Pair | None:
    """From the first chunk to the last one, by the tokens after the first; by chunks where no tokens were counted."""
    recorded, answer = result.planned.recorded, result.answer
    if not _is_served(result) or not answer.is_stream or len(answer.chunks_s) < 2:
        return None
    spent_s = answer.chunks_s[-1] - answer.chunks_s[0]
    if recorded.per_token_s is not None and (answer.usage.output or 0) > 1:
        return _positive(Pair(recorded.per_token_s, spent_s / ((answer.usage.output or 0) - 1)))
    return _positive(_pair(recorded.chunk_gap_s, spent_s / (len(answer.chunks_s) - 1)))


def _duration(result: Result) -> Pair | None:
    pair = _pair(result.planned.recorded.duration_s, result.answer.duration_s)
    return _positive(pair) if _is_whole(result) else None


_LENGTHS: Final[tuple[tuple[str, Callable[[Result], Pair | None]], ...]] = (
    ("input tokens", _input_tokens),
    ("output tokens", _output_tokens),
    ("chunks", _chunks),
)
_TIMES: Final[tuple[tuple[str, Callable[[Result], Pair | None]], ...]] = (
    ("time to first chunk", _first_chunk),
    ("time per output token", _per_token),
    ("duration", _duration),
)


def _pair(recorded: float | None, replayed: float | None) -> Pair | None:
    return Pair(recorded, replayed) if recorded is not None and replayed is not None else None


def _positive(pair: Pair | None) -> Pair | None:
    """Leave out a time that is 0 or less on a clock's grain: it has no ratio."""
    return pair if pair is not None and min(pair) > 0 else None


def _length(name: str, pairs: Sequence[Pair]) -> Length:
    equal = sum(pair.recorded == pair.replayed for pair in pairs)
    return Length(name, len(pairs), equal, *(round(sum(pair[arm] for pair in pairs)) for arm in (0, 1)))


def _times(name: str, pairs: Sequence[Pair]) -> Times:
    logs = [math.log(pair.replayed / pair.recorded) for pair in pairs]
    blocks = min(len(logs), _MOST_BLOCKS)
    ends = [len(logs) * at // blocks for at in range(blocks + 1)] if blocks else [0]
    means = [math.exp(fmean(logs[begin:end])) for begin, end in pairwise(ends)]
    return Times(name, tuple(pairs), ratio(means, [1.0] * blocks) if blocks >= LEAST_BLOCKS else None)
