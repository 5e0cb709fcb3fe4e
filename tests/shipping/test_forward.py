"""`inference-logging ship` to a real Fluent forward server, which is killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging.shipping.line import unix_nano
from tests.shipping.fluent import SHARED_KEY, TAG, Fluent
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]


def shipper(staged: Stage, fluent: Fluent, key: Path, **parameters: Any) -> Ship:
    """Return a shipper that has the key in a file."""
    files = {"ship_ca_file": fluent.certificate, "ship_shared_key_file": key}
    return Ship(staged.config, fluent.url, **files, **parameters)


def test_each_record_arrives_though_server_and_shipper_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    fluent: Fluent = start(Fluent(tmp_path / "fluent"))
    staged, key = stage(), tmp_path / "key"
    key.write_text(f"{SHARED_KEY}\n", "utf-8")
    ship: Ship = start(shipper(staged, fluent, key))
    written = staged.ship_under_kills(ship, fluent, rounds=4)
    entries = fluent.entries()
    resources = [entry["record"].pop("resource") for entry in entries]
    staged.show("Fluent forward by TLS", written, [entry["record"] for entry in entries], fluent, ship)
    assert {resource["service.name"] for resource in resources} == {staged.config.service_name}
    for entry in entries:
        assert entry["tag"] == TAG
        assert entry["seconds"] * 1_000_000_000 + entry["nanoseconds"] == unix_nano(entry["record"]["timestamp"])
    segments, marked = staged.marks("forward")
    assert segments == marked


def test_a_wrong_shared_key_is_reported_and_delivers_nothing(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    fluent: Fluent = start(Fluent(tmp_path / "fluent"))
    staged, key = stage(), tmp_path / "key"
    key.write_text("not-what-it-knows", "utf-8")
    ship: Ship = start(shipper(staged, fluent, key, drain_deadline_s=1))
    with staged.load() as load:
        load.wait_for(100)
        ship.wait_for("(?i)refuses: .*key")
        ship.wait_until_failing()
        assert ship.metric("errors_total", error_type="RefusedError") >= 1
        assert ship.metric("records_total") == 0
        assert ship.metric("lag_bytes") > 0
    written = staged.end()
    assert ship.stop() == 1
    assert "not-what-it-knows" not in "".join(ship.lines)
    assert fluent.entries() == []
    key.write_text(SHARED_KEY, "utf-8")
    # Now there is something to wait for.
    ship.parameters["drain_deadline_s"] = "60"
    ship.start()
    assert ship.stop() == 0, ship.lines
    records = [{name: value for name, value in one["record"].items() if name != "resource"} for one in fluent.entries()]
    staged.show("Fluent forward, the shared key wrong at first", written, records, fluent, ship)
