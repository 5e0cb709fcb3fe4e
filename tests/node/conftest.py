"""One node for all tests of a run, where records go, and releases of the chart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.images import ROOT, wheels
from tests.node.images import archives
from tests.node.node import ADDRESS, CGROUPS, NEEDED, PLUGINS, Node
from tests.node.serving import Chat, Destination

FAILED = pytest.StashKey[bool]()
"""Whether a test failed before its fixtures are undone. pytest counts it afterwards where tests can be run again."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the fixtures of a test know whether it failed."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """Build the images, and start a node that has them."""
    missing = [name for name in (*NEEDED, "buildah", "mmdebstrap") if shutil.which(name) is None]
    missing += [str(place) for place in (PLUGINS, CGROUPS / "memory") if not place.exists()]
    if os.geteuid() != 0 or missing or not wheels():
        pytest.skip(f"needs root, a wheel of `make wheel`, and {', '.join(missing) or 'no more'}")
    started = Node(ROOT / "build" / "node", archives())
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def destination(node: Node) -> Iterator[Destination]:
    """Serve OTLP at the node's address."""
    served = Destination(ADDRESS)
    yield served
    served.close()


@pytest.fixture
def install(
    node: Node, destination: Destination, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Chat]]:
    """Install releases with these changes of their values; they go with the test."""
    made: list[Chat] = []

    def start(name: str, *, installed: bool = True, **changes: Any) -> Chat:
        made.append(Chat(node, name, tmp_path, destination, changes))
        if installed:
            made[-1].install()
        return made[-1]

    yield start
    for one in made:
        if request.node.stash.get(FAILED, False):
            print(one.said())  # noqa: T201
        one.remove()
