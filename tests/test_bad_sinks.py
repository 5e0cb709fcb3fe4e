"""The load test with bad sinks does what it says: strikes, repairs, counts; how quick everything is stays out of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

LOADTESTS = Path(__file__).parent.parent / "loadtests"


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_server_fails_no_request_and_accounts_for_each_while_its_sink_is_bad() -> None:
    damages = ["missing directory", "closed pipe"]
    command = [sys.executable, str(LOADTESTS / "bad_sinks.py"), "--seconds", "3", "--only", *damages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for damage, kind in zip(damages, ["gone", "closed"], strict=True):
        assert re.search(rf"^{damage}: 0 of [1-9][\d,]* requests failed$", done.stdout, re.MULTILINE)
        assert re.search(rf"sink_errors_total{{error_type=\"{kind}\"", done.stdout)
    counts = re.findall(r"([\d,]+) requests = ([\d,]+) records \+ ([\d,]+) dropped, counted", done.stdout)
    assert len(counts) == len(damages)
    for line in counts:
        requests, records, dropped = (int(number.replace(",", "")) for number in line)
        assert requests == records + dropped > 0
