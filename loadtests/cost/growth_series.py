"""The form of what `make bench-growth` finds: how a cost changes with one quantity."""

from __future__ import annotations

from typing import TypedDict

from inference_logging.prove.bench.result import Estimate, Machine


class Point(Estimate):
    """What was measured at one place; ``control`` is the same work without logging, or the empty call."""

    x: int
    control: Estimate


class Series(TypedDict):
    """One quantity that grows. ``sentence`` is made from the figures: what they prove, or that they prove nothing."""

    name: str
    title: str
    x_title: str
    y_title: str
    words: str
    """How it was measured."""
    control_title: str
    points: list[Point]
    rounds: int
    growth: Estimate | None
    """What logging adds at the last point ÷ at the first, taken within each round; null if it is not above 0 there."""
    sentence: str
    accepted: int
    arrived: int


class Grown(TypedDict):
    """What `make bench-growth` found: the content of `growth.json`."""

    schema: int
    made: str
    command: str
    quick: bool
    machine: Machine
    growth: list[Series]
