"""`inference-logging ship` goes on where it was, whichever process is killed and whatever of its offsets is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.shipping.endpoint import Collector
from tests.shipping.otelcol import as_record, with_body
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage

pytestmark = pytest.mark.shipping


def test_each_record_arrives_though_shipper_and_listener_are_killed_and_offsets_are_older(
    stage: Callable[..., Stage], start: Callable[[Any], Any], collector: Collector
) -> None:
    staged = stage(compress="zstd")
    ship: Ship = start(Ship(staged.config, collector.url, ship_batch_records=20))
    offsets = staged.config.directory / ".otlp.offsets"
    with staged.load() as load:
        for number in range(4):
            ship.wait_until_shipped(40)
            saved = offsets.read_bytes()
            ship.wait_until_shipped(60)
            ship.kill()
            if number % 2 == 0:
                # As if it had been killed after it sent and before it saved.
                offsets.write_bytes(saved)
            else:
                staged.kill_listener()
                load.wait_for(20)
            ship.start()
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    records = [as_record(record) for record, _ in collector.received()]
    copies = staged.show("OTLP, with zstd", map(with_body, written), records, ship)
    assert copies >= 2 * 60, "what was not saved is sent again"
    segments, marked = staged.marks("otlp")
    assert segments == marked
