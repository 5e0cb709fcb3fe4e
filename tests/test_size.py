"""`inference-logging size`: what is computed follows from records that were really made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config
from inference_logging.cli.size import Fleet, Prices, computed
from inference_logging.sizing import Measured, Shape, measure
from tests.command_line import run

PRICES = Prices(disk=0.5, network=0.25, core=10.0)


@pytest.fixture(scope="module")
def plain() -> Measured:
    return measure(Config(), Shape(input_tokens=50, output_tokens=20, chunks=20, records=0))


def test_a_request_takes_bytes_of_each_kind(plain: Measured) -> None:
    assert plain.queue_bytes > 500
    assert 500 < plain.segment_bytes < 4000
    assert 10 < plain.compressed_bytes < plain.segment_bytes / 2
    assert plain.listener_cpu_s > 0


def test_what_a_configuration_records_more_is_measured(plain: Measured) -> None:
    shape = Shape(input_tokens=50, output_tokens=20, chunks=20, records=0)
    texts = measure(Config(capture_input="full", capture_output="full"), shape)
    assert texts.segment_bytes > plain.segment_bytes + 70 * 3  # a word has three letters or more
    events = measure(Config(chunks="events"), shape)
    assert events.segment_bytes > plain.segment_bytes + 20 * 100
    more = measure(Config(), shape._replace(records=5))
    assert more.segment_bytes > plain.segment_bytes + 5 * 100


def test_shares_and_places_of_the_configuration_do_not_change_the_measure(tmp_path: Path, plain: Measured) -> None:
    directory = tmp_path / "not touched"
    config = Config(sample_ratio=0.01, sink="null", directory=directory, compress="zstd", budget_records_s=1)
    found = measure(config, Shape(input_tokens=50, output_tokens=20, chunks=20, records=0))
    assert found.segment_bytes == pytest.approx(plain.segment_bytes, rel=0.05)
    assert not directory.exists()


def test_the_figures_of_a_fleet_are_those_of_a_request_times_its_requests() -> None:
    measured = Measured(queue_bytes=1000, segment_bytes=2000, compressed_bytes=100, listener_cpu_s=1e-3)
    config = Config(queue_bytes="1MiB", sample_ratio=0.5)
    found = computed(config, measured, Fleet(pods=10, processes=2, requests_s=4, keep_s=3600), PRICES)
    assert found["pod"] == {
        "queue_bytes": 2 << 20,
        "queue_lasts_s": pytest.approx((2 << 20) * 0.8 / 2000),
        "written_bytes_s": 4000,
        "disk_bytes": 4000 * 3600,
        "listener_cores": pytest.approx(2e-3),
    }
    month = 2 * 30 * 86400 * 10
    assert found["fleet"]["shipped_bytes_month"] == month * 2000
    assert found["fleet"]["archived_bytes_month"] == month * 100
    money = found["money_month"]
    assert money["disk"] == pytest.approx(10 * 4000 * 3600 / 1e9 * 0.5)
    assert money["network"] == pytest.approx(month * 2000 / 1e9 * 0.25)
    assert money["total"] == pytest.approx(money["disk"] + money["network"] + 10 * 2e-3 * 10)


def test_compressed_segments_take_less_disk() -> None:
    measured = Measured(queue_bytes=1000, segment_bytes=2000, compressed_bytes=100, listener_cpu_s=1e-3)
    fleet = Fleet(pods=1, processes=1, requests_s=1, keep_s=10)
    assert computed(Config(compress="zstd"), measured, fleet, PRICES)["pod"]["disk_bytes"] == 1000


def test_the_command_prints_a_table_or_json() -> None:
    found: dict[str, Any] = json.loads(run("size", "--requests-s", "2", "--tokens", "10", "--json").out)
    assert set(found) == {"request", "pod", "fleet", "money_month"}
    table = run("size", "--requests-s", "2", "--tokens", "10", "--pods", "30").out
    assert "30 pods" in table
    assert "per month: " in table


@pytest.mark.parametrize(
    ("option", "value"), [("--requests-s", "0"), ("--tokens", "-1"), ("--pods", "0"), ("--keep", "soon")]
)
def test_a_wrong_number_is_refused_by_name(option: str, value: str) -> None:
    given = {"--requests-s": "2", "--tokens": "10", option: value}
    done = run("size", *(part for pair in given.items() for part in pair))
    assert done.code == 2
    assert option in done.err
    assert value in done.err
