"""`stats` asks the table: its figures and quantiles are those of a plain count, whatever records hold, as in `view`."""

from __future__ import annotations

import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import duckdb
import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from inference_logging.read.segments import segments
from inference_logging.read.stats import counting
from inference_logging.read.stats.counts import Counts, Group
from inference_logging.read.stats.summary import figures
from inference_logging.read.table import catalog
from inference_logging.read.table.sketch import RELATIVE_ERROR, Sketch, sketches
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, stamp, write_segment
from tests.read.table_questions import ask, open_table

LARGEST: Final = sys.float_info.max
ODD: Final = st.sampled_from([None, "", "7", "NaN", True, [1], {"a": 1}, 2**53, 2**63, 2**64 - 1, 1e300])
NUMBERS: Final = st.sampled_from([0.0, 5e-324, 1e-9, 0.25, 3, 1e9]) | st.floats(1e-6, 1e6)
NAMES: Final = st.sampled_from(["a", "b", "(other)", "é\0\"'", "x" * 300])
FIELDS: Final = {
    "duration_s": NUMBERS,
    "chunk_gap_mean_us": st.integers(0, 10**7),
    "gen_ai.response.time_to_first_chunk": NUMBERS,
    "gen_ai.response.time_per_output_token": NUMBERS,
    "gen_ai.response.output_tokens_per_second": NUMBERS,
    "gen_ai.usage.input_tokens": st.integers(0, 10**6),
    "gen_ai.usage.output_tokens": st.integers(0, 10**6),
    "adjusted_count": st.sampled_from([1.0, 2.5, 1e6, -1]),
    "gen_ai.response.model": NAMES,
    "gen_ai.request.model": NAMES,
    "http.route": NAMES,
    "sampled_by": st.sampled_from(["head", "tail"]),
    "outcome": st.sampled_from(["ok", "error", "client_disconnect"]),
    "http.response.status_code": st.integers(90, 610),
}
RECORDS: Final = st.lists(
    st.fixed_dictionaries({}, optional={name: values | values | values | ODD for name, values in FIELDS.items()}),
    min_size=10,
    max_size=40,
)


def counted(directory: Path, since: float | None = None) -> Counts:
    return counting.count(segments(directory), since, None, lambda _: None).counts


def number(record: Mapping[str, Any], name: str) -> float | None:
    value: Any = record.get(name)
    return float(value) if type(value) in (int, float) else None


def weight(record: Mapping[str, Any]) -> float:
    value = number(record, "adjusted_count")
    return value if value is not None and value > 0 else 1.0


def text(record: Mapping[str, Any], otherwise: str, *names: str) -> str:
    for value in (record[name] for name in names if record.get(name) not in (None, "")):
        return value if isinstance(value, str) else "(other)" if isinstance(value, dict | list) else json.dumps(value)
    return otherwise


def assert_distributed(sketch: Sketch, records: Sequence[Mapping[str, Any]], name: str, unit: float = 1.0) -> None:
    """Compare with sorting."""
    found = sorted((value * unit, weight(r)) for r in records if (value := number(r, name)) is not None)
    assert sketch.values == len(found)
    assert sketch.count == pytest.approx(sum(times for _, times in found))
    for share in (0.5, 0.9, 0.99) if found else ():
        rank, below, at_rank = share * sketch.count, 0.0, []
        for value, times in found:
            # Where a rank is on the border of two values, the last digits of a sum decide.
            if below <= rank * (1 + 1e-6) and below + times >= rank * (1 - 1e-6):
                at_rank.append(value)
            below += times
        answer = sketch.quantile(share)
        assert any(answer == pytest.approx(value, rel=0.0101, abs=1e-9) for value in at_rank), (answer, at_rank)
    assert not found or sketch.greatest == found[-1][0]


def assert_counts(group: Group, records: Sequence[Mapping[str, Any]]) -> None:
    outcomes: Counter[str] = Counter()
    for record in records:
        outcomes[text(record, "(none)", "outcome")] += weight(record)  # type: ignore[assignment]
    assert group.records == len(records)
    assert group.outcomes == pytest.approx(dict(outcomes))
    assert group.requests == pytest.approx(sum(map(weight, records)))
    for found, name in ((group.input_tokens, "input_tokens"), (group.output_tokens, "output_tokens")):
        assert found == pytest.approx(sum((number(r, f"gen_ai.usage.{name}") or 0) * weight(r) for r in records))
    assert_distributed(group.duration, records, "duration_s")
    assert_distributed(group.chunk_gap, records, "chunk_gap_mean_us", 1e-6)
    assert_distributed(group.first_chunk, records, "gen_ai.response.time_to_first_chunk")
    assert_distributed(group.per_token, records, "gen_ai.response.time_per_output_token")
    assert_distributed(group.tokens_per_s, records, "gen_ai.response.output_tokens_per_second")


# To make a failing case smaller would take many minutes.
@pytest.mark.servers
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(RECORDS)
def test_the_figures_are_those_of_sorting_and_adding_up_whatever_values_are(fields: list[dict[str, Any]]) -> None:
    records = [{**request(at), "outcome": None, "duration_s": None, **one} for at, one in enumerate(fields)]
    plain = [{name: value for name, value in record.items() if value is not None} for record in records]
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "logs")
        # With null in the line and without the member: the same figures, by the line and by the columns.
        for at, one in enumerate((records, plain)):
            write_segment(directory, one[: len(one) // 2], number=2 * at + 1)
            write_segment(directory, one[len(one) // 2 :], number=2 * at + 2, compressed=True)
        counts = counted(directory)
    twice = [*records, *records]
    assert counts.corrupt_lines == 0
    assert_counts(counts.whole, twice)
    for groups, names in (
        (counts.models, ("(none)", "gen_ai.response.model", "gen_ai.request.model")),
        (counts.routes, ("(none)", "http.route")),
    ):
        assert groups.keys() == {text(record, *names) for record in records}
        for key, group in groups.items():
            assert_counts(group, [record for record in twice if text(record, *names) == key])
    assert sum(group.records for group in counts.intervals.values()) == len(twice)
    assert counts.sampled_by == Counter(text(record, "head", "sampled_by") for record in twice)
    assert (counts.first, counts.last) == (stamp(0), stamp(len(records) - 1))
    assert figures(counts)["requests_per_s"] == pytest.approx(sum(map(weight, twice)) / (len(records) - 1))
    usual = [weight(record) for record in twice if (number(record, "http.response.status_code") or 0) // 100 == 2]
    assert counts.whole.statuses.get("2xx", 0.0) == pytest.approx(sum(usual))


@pytest.fixture(name="logs")
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return segments whose rows are files, as those of many bytes are."""
    monkeypatch.setattr(catalog, "LEAST_KEPT_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "logs"
    records = [request(at, duration_s=at / 7, adjusted_count=1.0 + at % 3) for at in range(200)]
    records[3]["duration_s"], records[5]["duration_s"] = LARGEST, "odd"
    reported = {"timestamp": stamp(1), "event_name": "log.dropped", "boot_id": "1" * 16, "dropped": 3}
    reports = [{**reported, "reasons": {"oversize": {"ERROR": n}}} for n in (5, 2)]
    write_segment(directory, [*records, *reports], dropped={"queue_full": {"INFO": 7}}, tail=b"not JSON\n")
    write_segment(directory, [request(300), log(301)], number=2, second=250, compressed=True)
    return directory


def stats(directory: Path, *arguments: str) -> dict[str, Any]:
    done = run("stats", str(directory), "--json", *arguments)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def files(directory: Path) -> list[Path]:
    return sorted((directory.parent / "cache").rglob("*.parquet"))


def test_stats_view_and_query_say_the_same(logs: Path, tmp_path: Path) -> None:
    found = figures(counted(logs))
    table = open_table(logs, tmp_path / "cache" / "inference-logging")
    page = ask(table, "aggregate", events=["request"], fields=["duration_s"], buckets=3)
    of_page = page["fields"]["duration_s"]
    names = ("p50", "p90", "p95", "p99")
    assert [of_page[name] for name in names] == [found["duration_s"][name] for name in names]
    assert of_page["max"] == found["duration_s"]["greatest"] == LARGEST
    assert (sum(page["count"]), sum(page["weighted"])) == (found["request_records"], found["requests"])
    assert (int(page["last_ns"]) - int(page["first_ns"])) / 1e9 == found["seconds"]
    sql = "SELECT count(*) AS n, sum(adjusted_count) AS w FROM requests WHERE seq < 200000"
    (row,) = run("query", sql, str(logs), "--format", "json").out.splitlines()
    assert json.loads(row) == {"n": found["request_records"] - 1, "w": found["requests"] - 1}


def test_the_figures_of_files_are_those_of_rows_in_memory(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = stats(logs)
    assert len(files(logs)) == 2
    made = [path.stat().st_ino for path in files(logs)]
    assert stats(logs) == cold
    assert [path.stat().st_ino for path in files(logs)] == made, "they are used again"
    monkeypatch.setattr(catalog, "LEAST_KEPT_BYTES", 1 << 40)
    assert stats(logs) == cold
    assert (cold["request_records"], cold["corrupt_lines"], cold["events"]["log"]) == (201, 1, 1)
    assert cold["dropped"] == [
        {"reason": "oversize", "level": "ERROR", "records": 5}, {"reason": "queue_full", "level": "INFO", "records": 7},
    ]  # fmt: skip


def spoil(path: Path) -> None:
    facts, content = path.stat(), bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    with path.open("r+b") as file:  # in place and at the same time: nothing but its content tells
        file.write(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("harm", [Path.unlink, spoil])
def test_a_harmed_file_of_the_table_changes_no_figure(logs: Path, harm: Callable[[Path], None]) -> None:
    before = stats(logs)
    harm(files(logs)[0])
    assert stats(logs) == before
    assert len(files(logs)) == 2


def test_without_a_place_for_files_they_are_temporary(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stats(logs)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert stats(logs) == before
    assert not list(tmp_path.glob("inference-logging-*"))


def test_segments_before_that_time_get_no_rows(logs: Path) -> None:
    os.utime(next(logs.glob("*000001.jsonl")), (0, 0))
    assert stats(logs, "--since", stamp(290))["requests"] == 1
    assert len(files(logs)) == 1


def test_a_live_segment_and_one_segment_alone_are_counted(logs: Path) -> None:
    path = write_segment(logs, [request(400)], number=3, second=400, sealed=False)
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert stats(path)["requests"] == 1
        writer.write(orjson.dumps(request(401)) + b"\n" + orjson.dumps(request(402))[:20])
        writer.flush()
        assert stats(path)["requests"] == 2
        assert stats(logs)["request_records"] == 203
    assert len(files(logs)) == 2


def test_a_segment_that_cannot_be_read_is_named(logs: Path) -> None:
    next(logs.glob("*000002.jsonl.zst")).write_bytes(b"")
    assert stats(logs)["corrupt_lines"] == 2
    assert "cut off" in run("stats", str(logs)).err


@pytest.mark.parametrize(("module", "extra"), [("duckdb", "query"), ("zstandard", "cli")])
def test_without_a_library_one_line_names_the_extra(module: str, extra: str, logs: Path) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from inference_logging.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "stats", str(logs)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f" needs {module}: pip install 'inferlog[{extra}]'")


VALUES = st.lists(st.floats(1e-8, 1e8) | st.sampled_from([1e-3, 0.5, 1.0]), min_size=1, max_size=60)
SQL = duckdb.connect()


def sketches_of(values: list[float], weights: list[float], group: str = "NULL") -> dict[Any, Sketch]:
    rows: Any = SimpleNamespace(cursor=SQL, relation="SELECT unnest($v::DOUBLE[]) AS v, unnest($w::DOUBLE[]) AS weight")
    return sketches(rows, "v", group, {"v": values, "w": weights})


def sketch_of(values: list[float], weight: float = 1.0) -> Sketch:
    return sketches_of(values, [weight] * len(values))[None]


@settings(deadline=None)
@given(values=VALUES, share=st.floats(0, 1), weight=st.sampled_from([1.0, 3.0, 0.25]))
def test_each_quantile_is_within_the_stated_error_of_the_value_at_that_rank(
    values: list[float], share: float, weight: float
) -> None:
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    found = sketch_of(values, weight).quantile(share)
    assert found is not None
    assert abs(found - exact) <= RELATIVE_ERROR * exact * (1 + 1e-9)


@settings(deadline=None)
@given(VALUES)
def test_mean_and_greatest_are_exact_and_no_quantile_is_beyond_them(values: list[float]) -> None:
    sketch = sketch_of(values)
    assert sketch.mean == pytest.approx(sum(values) / len(values))
    assert (sketch.values, sketch.least, sketch.greatest) == (len(values), min(values), max(values))
    quantiles = [sketch.quantile(share / 10) or 0.0 for share in range(11)]
    assert min(values) <= quantiles[0]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] <= max(values)


@settings(deadline=None)
@given(VALUES)
def test_groups_are_distributed_as_each_alone_and_all_as_without_groups(values: list[float]) -> None:
    found = sketches_of(values, [1.0] * len(values), "v < 1.0")
    for key, chosen in ((None, values), (True, [v for v in values if v < 1]), (False, [v for v in values if v >= 1])):
        alone = sketch_of(chosen) if chosen else Sketch()
        assert found.get(key, Sketch()).buckets == alone.buckets
        assert found.get(key, Sketch()).values == len(chosen)


def test_weights_count_as_repetition() -> None:
    sketch = sketches_of([1.0, 100.0], [99.0, 1.0])[None]
    assert sketch.quantile(0.98) == pytest.approx(1.0, rel=RELATIVE_ERROR)
    assert sketch.quantile(0.999) == pytest.approx(100.0, rel=RELATIVE_ERROR)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_weight_counts_once(weight: float) -> None:
    assert sketches_of([1.0, 2.0], [weight, 3.0])[None].count == 4


def test_zero_is_counted_and_an_empty_sketch_has_no_quantile() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None
    sketch = sketch_of([0.0, 0.0, 0.0, 1.0])
    assert sketch.quantile(0.5) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_a_thousand_years_and_a_nanosecond_take_a_bounded_number_of_buckets() -> None:
    values = [10 ** (exponent / 10) * (1 + step / 385) for exponent in range(-90, 101) for step in range(100)]
    assert len(sketch_of(values).buckets) < 2300
