"""Servers killed while they stream: each request that had begun has one record, which reports how far it had come."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Play
from tests.crash.serving import serve
from tests.crash.test_leaders_killed import ALWAYS, ROTATING, kill_leaders

pytestmark = [pytest.mark.servers, pytest.mark.kills]


def test_each_request_of_servers_that_are_killed_one_by_one_has_one_record(play: Play) -> None:
    # The process that leads is killed, and so often in the middle of what it writes about those killed before.
    # The queues are so large that no record is refused.
    figures = play(kill_leaders, serve, **ALWAYS, **ROTATING, queue_bytes=1 << 24)
    assert figures.cut_off > 0
    assert figures.refused == 0
