"""A stage for each test, what a test starts is ended with it, and a summary of what was shown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

import pytest

from inference_logging.ship.line import Destination
from inference_logging.ship.opening import open_destination
from tests.kit.signatures import Configure
from tests.ship.bucket import bucket
from tests.ship.endpoint import collector
from tests.ship.stage import Figures, Stage, parameters

__all__ = ["bucket", "collector"]  # fixtures

_SHOWN: Final = "shipped"


class Startable(Protocol):
    """A real server, or a shipper."""

    def start(self) -> None: ...
    def end(self) -> None: ...


Started = TypeVar("Started", bound=Startable)


@pytest.fixture
def start() -> Iterator[Callable[[Started], Started]]:
    """Start programs; they are ended after the test."""
    with contextlib.ExitStack() as stack:

        def started(program: Started) -> Started:
            stack.callback(program.end)
            program.start()
            return program

        yield started


@pytest.fixture
def opened(configure: Callable[..., Any]) -> Iterator[Callable[..., Destination]]:
    """Open destinations by their parameters, and close them at the end."""
    all_opened = []

    def begin(**parameters: Any) -> Destination:
        all_opened.append(open_destination(configure(**{"ship_timeout_s": 2.0, **parameters})))
        return all_opened[-1]

    yield begin
    for destination in all_opened:
        destination.close()


@pytest.fixture
def stage(configure: Configure, request: pytest.FixtureRequest) -> Iterator[Callable[..., Stage]]:
    """Set a stage with the given parameters."""

    def show(figures: Figures) -> None:
        request.node.user_properties.append((_SHOWN, str(figures)))

    with contextlib.ExitStack() as stack:
        yield lambda **more: stack.enter_context(Stage(configure(**parameters(**more)), show))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was shown."""
    calls = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    shown = [text for report in calls for name, text in report.user_properties if name == _SHOWN]
    if shown:
        terminalreporter.section("shipped")
        for text in shown:
            terminalreporter.line(text)
