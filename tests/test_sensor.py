"""The example of a sensor: as many entries by ``write`` as in the segments."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance, variables
from tests.c_programs import LIBRARY, STRICT_C, compiled
from tests.support import read_records

pytestmark = pytest.mark.servers

Configure = Callable[..., Config]
SOURCE = LIBRARY.parent.parent / "examples" / "c_sensor" / "sensor.c"
COUNT = 5_000
ENTRY_BYTES = 128


@pytest.fixture(scope="module")
def sensor(installed: Path) -> Path:
    """Compile the example."""
    return compiled(installed, str(SOURCE), *STRICT_C)


@pytest.mark.parametrize("queue_bytes", ["64KiB", "8MiB"])
def test_each_reading_is_in_the_file_and_in_the_segments(
    sensor: Path, configure: Configure, tmp_path: Path, queue_bytes: str
) -> None:
    config = configure(queue_bytes=queue_bytes, max_record_bytes=16384)
    by_write = tmp_path / "readings.log"
    ended = subprocess.run(
        [sensor, str(COUNT), by_write],
        env=os.environ | variables(config),
        timeout=180,
        check=True,
        capture_output=True,
        text=True,
    )
    lines = by_write.read_text().splitlines(keepends=True)
    assert {len(line) for line in lines} == {ENTRY_BYTES}
    written = [(int(number), samples) for number, samples in map(str.split, lines)]
    assert [number for number, _ in written] == list(range(COUNT))
    records = read_records(config.directory, "sensor.reading")
    assert [(record["number"], record["samples"]) for record in records] == written
    assert re.search(r"^write / inferlog: \d+\.\d$", ended.stdout, re.MULTILINE)
    assert_books_balance(config)


def test_a_file_that_cannot_be_written_is_reported(sensor: Path, configure: Configure, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sensor, "1", tmp_path / "absent" / "readings.log"],
        env=os.environ | variables(configure()),
        timeout=180,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "absent" in ended.stderr
