"""One control plane for all tests of a run, and releases of the chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.control_plane import ControlPlane, Simulated
from tests.cluster.release import Release


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Start a control plane with one node."""
    control_plane = Simulated(tmp_path_factory.mktemp("cluster"))
    try:
        control_plane.start()
        yield control_plane
    finally:
        control_plane.stop()


@pytest.fixture
def release(cluster: ControlPlane) -> Iterator[Callable[[str], Release]]:
    """Make releases, each in a namespace of its own, which goes with the test."""
    made: list[Release] = []

    def make(situation: str) -> Release:
        made.append(Release(cluster, situation))
        return made[-1]

    yield make
    for one in made:
        one.remove()
