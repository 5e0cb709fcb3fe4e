"""Conditions of `--where`: what can hardly be meant is refused alike by each command that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command_line import run
from tests.kit.segment_files import request, write_segment

NOT_A_NUMBER = "'chunk_gap_mean_us>2 ms': chunk_gap_mean_us is a number, but '2 ms' is not"


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("outcome==ok", "'outcome==ok': == is no operator: write outcome=ok"),
        ("outcome=~ok", "'outcome=~ok': =~ is no operator: write outcome~ok"),
        (
            "duration_s>100ms",
            "'duration_s>100ms': duration_s is a number, but '100ms' is not; in seconds, duration_s>0.1",
        ),
        ("chunk_gap_mean_us>2 ms", f"{NOT_A_NUMBER}; in microseconds, chunk_gap_mean_us>2000"),
        ("status=5xx", "'status=5xx': status is a number, but '5xx' is not"),
    ],
)
@pytest.mark.parametrize("command", [["tail"], ["stats"], ["export", "--format", "perfetto", "-o", "-"]])
def test_a_condition_that_can_hardly_be_meant_so_is_refused(
    command: list[str], where: str, wrong: str, tmp_path: Path
) -> None:
    write_segment(tmp_path, [request(1)])
    done = run(*command, str(tmp_path), "--where", where)
    said = f"Error: Invalid value for --where: {wrong} (see inference-logging {command[0]} --help)\n"
    assert done == (2, "", said)
