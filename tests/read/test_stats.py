"""`inference-logging stats`: the figures against a plain count over the same records, times asked for, odd records."""

from __future__ import annotations

import json
import math
import os
import pty
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from inference_logging.cli.options import point_in_time
from inference_logging.read.segments import segments
from inference_logging.read.stats import counting
from inference_logging.read.stats.counts import MAX_GROUPS, MAX_INTERVALS, MAX_NAMES, OTHER, Counts
from inference_logging.read.view.app import STATIC
from tests.kit.command_line import run
from tests.kit.segment_files import BEGUN, log, request, stamp, write_segment
from tests.kit.support import wait_until
from tests.read.table_questions import ask, open_table

FAILED_ON_THE_PAGE: list[str] = json.loads(
    re.search(r"^const FAILED = (.*);$", (STATIC / "overview.js").read_text(), re.MULTILINE)[1]  # type: ignore[index]
)
"""The conditions of the list of failed requests."""


def figures(*arguments: str) -> dict[str, Any]:
    done = run("stats", *arguments, "--json")
    assert done.code == 0, done.err
    parsed = json.loads(done.out)
    assert isinstance(parsed, dict)
    return parsed


def counted(directory: Path, records: Iterable[Mapping[str, Any]]) -> Counts:
    write_segment(directory, records)
    return counting.count(segments(directory), None, None, lambda _: None).counts


def some_requests(count: int = 500) -> list[dict[str, Any]]:
    dice = random.Random(11)
    return [
        request(
            number / 10,
            dice.choice(["ok", "ok", "ok", "error", "timeout"]),
            http__route=dice.choice(["/a", "/b"]),
            duration_s=dice.lognormvariate(-1, 1),
            gen_ai__response__model=dice.choice(["small", "large"]),
            gen_ai__response__time_to_first_chunk=dice.lognormvariate(-3, 1),
            chunk_gap_mean_us=dice.randrange(1, 9000),
            gen_ai__response__time_per_output_token=dice.lognormvariate(-4, 1),
            gen_ai__response__output_tokens_per_second=dice.lognormvariate(4, 1),
            gen_ai__usage__input_tokens=dice.randrange(1000),
            gen_ai__usage__output_tokens=dice.randrange(100),
            sampled_by="head",
            adjusted_count=dice.choice([1.0, 1.0, 4.0]),
        )
        for number in range(count)
    ]


def test_only_the_records_of_the_time_asked_for_are_counted(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(second) for second in range(10)])
    assert figures(str(tmp_path), "--since", "2026-11-21T05:00:03Z")["requests"] == 7
    assert figures(str(tmp_path), "--until", "2026-11-21 05:00:03")["requests"] == 3
    between = ("--since", "2026-11-21T06:00:02+01:00", "--until", "2026-11-21T05:00:04.500")
    assert figures(str(tmp_path), *between)["requests"] == 3
    assert figures(str(tmp_path), "--until", "2026-11-21")["requests"] == 0


def test_only_the_records_that_meet_the_conditions_are_counted(tmp_path: Path) -> None:
    records = [request(at, "error" if at % 3 == 0 else "ok", duration_s=float(at)) for at in range(10)]
    write_segment(tmp_path, [*records, log(20), request(11, attributes={"n": 5})])

    def requests(*conditions: str) -> Any:
        return figures(str(tmp_path), *(part for one in conditions for part in ("--where", one)))["requests"]

    assert [requests("outcome=error"), requests("duration_s>=5"), requests("attributes.n=5")] == [4, 5, 1]
    assert requests("outcome=ok", "duration_s>=5") == 3, "all must hold"
    assert (requests("status=200"), requests("method=POST")) == (7, 11), "short names mean their fields"
    done = run("stats", str(tmp_path), "--where", "model=m", "--where", "outcome=ok")
    assert "stats: nothing: no request in these segments meets model=m and outcome=ok\n" in done.err
    assert (done.code, "Why records were kept" in done.out) == (0, False)
    done = run("stats", str(tmp_path), "--where", "outcom=ok")
    sentence = "Error: no record has the field 'outcom'; the nearest: outcome (see inference-logging stats --help)\n"
    assert done == (2, "", sentence)


def test_a_segment_last_written_before_that_time_is_not_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [request(1)], tail=b"not JSON\n")
    os.utime(path, (BEGUN.timestamp(),) * 2)
    assert run("stats", str(tmp_path), "--since", "2026-11-21T05:00:05Z").err == (
        "inference-logging stats: nothing: no request arrived in that time\n"
    )
    assert "not JSON" in run("stats", str(tmp_path), "--since", "2026-11-21T05:00:00Z").err


def test_only_the_segments_of_the_named_services_are_counted(tmp_path: Path) -> None:
    for number, prefix in enumerate(("a", "b", "c")):
        write_segment(tmp_path, [request(1)] * (number + 1), prefix=prefix)
    assert figures(str(tmp_path), "--prefix", "b")["requests"] == 2
    assert figures(str(tmp_path), "--prefix", "a", "--prefix", "c")["requests"] == 4


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 1_000_000 - 900),
        ("1.5h", 1_000_000 - 5400),
        ("2d", 1_000_000 - 172800),
        ("1970-01-02", 86400),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01.500000000Z", 1.5),
        ("1970-01-01t02:00:00+02:00", 0),
        ("1970-01-01 00:01", 60),
    ],
)
def test_a_time_is_a_date_with_or_without_time_or_an_age(text: str, seconds: float) -> None:
    assert point_in_time(text, 1_000_000) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "5", "5 weeks", "2026-13-01", "-5m"])
def test_another_time_is_wrong_usage(text: str, tmp_path: Path) -> None:
    done = run("stats", str(tmp_path), f"--since={text}")
    assert done.code == 2
    assert f"{text!r}: must be RFC 3339" in " ".join(done.err.split())


def test_drops_are_the_last_counts_of_each_process_from_footers_and_records(tmp_path: Path) -> None:
    # Both count from the beginning of the process, so they must not be added up.
    reported = {"timestamp": stamp(1), "event_name": "log.dropped", "boot_id": "00000000deadbeef", "dropped": 3}
    other = {**reported, "boot_id": "0123456789abcdef", "reasons": {"oversize": {"ERROR": 5}}}
    write_segment(tmp_path, [{**reported, "reasons": {"queue_full": {"INFO": 3}}}], dropped={"queue_full": {"INFO": 7}})
    write_segment(tmp_path, [other], number=2, second=1, dropped={"queue_full": {"INFO": 9, "DEBUG": 1}})
    assert figures(str(tmp_path))["dropped"] == [
        {"reason": "oversize", "level": "ERROR", "records": 5},
        {"reason": "queue_full", "level": "DEBUG", "records": 1},
        {"reason": "queue_full", "level": "INFO", "records": 9},
    ]


def test_requests_are_counted_by_the_class_of_their_status(tmp_path: Path) -> None:
    statuses = [200, 204, 302, 404, 422, 503, None, "odd", 99]
    records = [{**request(n), "http.response.status_code": status} for n, status in enumerate(statuses)]
    write_segment(tmp_path, [*records, request(20, adjusted_count=10.0)])
    found = figures(str(tmp_path))
    assert found["status_classes"] == {
        "(none)": 1, "(other)": 2, "2xx": 12, "3xx": 1, "4xx": 2, "5xx": 1,
    }  # fmt: skip
    assert found["routes"]["/v1/chat/completions"]["status_classes"]["2xx"] == 12
    table = run("stats", str(tmp_path)).out.split("\n\nStatus classes\n")[1].split("\n\n")[0]
    assert re.search(r"^2xx +12 +63.16 %$", table, re.MULTILINE)


def test_the_tables_name_outcomes_times_models_routes_tokens_and_drops(tmp_path: Path) -> None:
    write_segment(tmp_path, some_requests(), dropped={"queue_full": {"INFO": 12345}})
    out = run("stats", str(tmp_path)).out
    assert out.startswith("Requests                   ")
    for title in (
        "Outcomes",
        "Status classes",
        "Times",
        "By model",
        "By route",
        "Tokens by model",
        "Records",
        "Dropped records",
    ):
        assert f"\n\n{title}\n" in out, title
    assert "500 records, each weighted by its adjusted_count." in out
    assert "queue_full, INFO   12,345" in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_name_with_control_characters_can_not_reach_the_terminal(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1, gen_ai__response__model="\x1b[2Jx\n\u202e", outcome="\x07")])
    for arguments in ((), ("--json",)):
        out = run("stats", str(tmp_path), *arguments).out
        assert "\\u001b[2Jx\\n" in out or "\\u001b[2Jx\\u000a" in out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize(
    "record",
    [
        {"event_name": "request"},
        {"event_name": "request", "timestamp": "yesterday"},
        {"event_name": "log.dropped", "reasons": 7},
        {"event_name": "log.dropped", "reasons": {"queue_full": {"INFO": "many"}}},
        {"event_name": "segment.footer", "processes": {"a": 1}},
    ],
)
def test_a_record_that_can_not_be_counted_is_counted_as_corrupt(record: dict[str, Any], tmp_path: Path) -> None:
    counts = counted(tmp_path, [request(1), record])
    assert (counts.whole.requests, counts.corrupt_lines) == (1, 1)


def test_memory_does_not_grow_with_names_or_time(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    for number in range(MAX_GROUPS + 500):
        odd = {"boot_id": f"{number:016x}", "outcome": f"o{number}", "sampled_by": f"s{number}"}
        records.append(request(number * 1000, **{"http.route": f"/{number}", **odd}))
        records.append({"timestamp": stamp(1), "event_name": f"event{number}"})
    counts = counted(tmp_path, [*records, request(1, http__route="/often", adjusted_count=9)])
    assert len(counts.routes) == MAX_GROUPS + 1
    assert counts.routes[OTHER].records == 501
    assert counts.routes["/often"].requests == 9
    assert len(counts.intervals) <= MAX_INTERVALS
    assert len(counts.events) <= MAX_NAMES + 1
    assert len(counts.sampled_by) <= MAX_NAMES + 1
    assert len(counts.whole.outcomes) <= MAX_NAMES + 1
    assert counts.whole.requests == MAX_GROUPS + 509


@pytest.mark.servers
@pytest.mark.parametrize(
    ("outcome", "has_failed"),
    [
        ("ok", False), ("client_disconnect", False), ("error", True), ("timeout", True), ("server_shutdown", True),
        ("aborted", True), ("process_died", True), (None, False), ("unknown", True),
    ],
)  # fmt: skip
def test_failed_is_one_thing_for_stats_view_and_query(outcome: str | None, has_failed: bool, tmp_path: Path) -> None:
    # A JSON null beside a member of another type is read from the line, the others from columns.
    odd = {**request(3, tenant__id=5, adjusted_count=1), "outcome": outcome}
    asked = {**request(1, adjusted_count=3), "outcome": outcome}
    if outcome is None:
        del asked["outcome"]
    write_segment(tmp_path, [asked, odd, request(2, host__name="h")])
    share = 4 / 5 if has_failed else 0.0
    found = figures(str(tmp_path))
    assert found["failed"] == 5 * share
    assert f"Failed                     {100 * share:.2f} %" in run("stats", str(tmp_path)).out
    for name, field, value in (("slowest-pods", "failure_rate", share), ("models-over-time", "failed", 5 * share)):
        answer = run("query", "--example", name, str(tmp_path), "--format", "json").out
        assert json.loads(answer)[field] == value
    table = open_table(tmp_path, tmp_path / "cache")
    assert sum(ask(table, "aggregate", events=["request"])["errors"]) == 5 * share
    listed = ask(table, "rows", where=FAILED_ON_THE_PAGE, events=["request"])["rows"]
    assert len(listed) == (2 if has_failed else 0)


def test_the_time_line_has_every_request_however_coarse_it_is(tmp_path: Path) -> None:
    seconds = [0, 1, 2, 10, 1000, 500, 86400, 3, 40_000]
    counts = counted(tmp_path, [request(second, "error" if second == 3 else "ok") for second in seconds])
    intervals = counts.intervals
    assert sum(interval.requests for interval in intervals.values()) == len(seconds)
    assert sum(interval.failed for interval in intervals.values()) == 1
    assert max(intervals) - min(intervals) < MAX_INTERVALS
    assert counts.interval_s == 2 ** math.ceil(math.log2(86400 / MAX_INTERVALS))
    assert sum(interval.duration.count for interval in intervals.values()) == len(seconds)


def test_of_many_damaged_lines_a_few_are_reported_and_all_are_counted(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1), {"event_name": "request", "timestamp": 7}], tail=b"\x1b[2J\n" * 1000)
    done = run("stats", str(tmp_path), "--json")
    assert json.loads(done.out)["corrupt_lines"] == 1001
    assert len(done.err.splitlines()) == counting.MAX_REPORTED + 1
    assert done.err.endswith("1,001 lines could not be counted\n")


def test_the_least_and_the_largest_number_are_counted_and_drawn(tmp_path: Path) -> None:
    durations = [0.0, 5e-324, 1e-9, 1.0, sys.float_info.max, sys.float_info.max]
    write_segment(tmp_path / "logs", [request(number, duration_s=given) for number, given in enumerate(durations)])
    page = tmp_path / "page.html"
    assert run("stats", str(tmp_path / "logs"), "--html", str(page)).code == 0
    assert page.stat().st_size > 0
    found = figures(str(tmp_path / "logs"))
    assert found["requests"] == len(durations)
    assert found["duration_s"]["p99"] == pytest.approx(sys.float_info.max, rel=0.02)
    assert found["duration_s"]["mean"] is None


def test_html_and_json_exclude_each_other(tmp_path: Path) -> None:
    done = run("stats", str(tmp_path), "--json", "--html", str(tmp_path / "x.html"))
    assert done.code == 2


def test_segments_without_records_have_no_requests(tmp_path: Path) -> None:
    write_segment(tmp_path, [])
    assert figures(str(tmp_path))["requests"] == 0
    assert "Requests per second        –" in run("stats", str(tmp_path)).out


def test_much_to_read_shows_its_progress_on_a_terminal_and_leaves_standard_output_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, "x" * 1000)] * 20_000)
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "inference_logging.cli.main", "stats", str(tmp_path), "--json"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, env=environment) as stats:
        os.close(child)
        assert stats.stdout is not None
        out = stats.stdout.read()
        wait_until(lambda: stats.poll() is not None, "stats to end")
    shown = os.read(parent, 1 << 16).decode()
    os.close(parent)
    assert json.loads(out)["events"] == {"log": 20_000}
    assert "MB" in shown
    assert run("stats", str(tmp_path), "--json").err == (
        "inference-logging stats: nothing: no request is in these segments\n"
    )
