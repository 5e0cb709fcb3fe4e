"""`inference-logging size`: what is computed follows from records that were really made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from inference_logging import Config
from inference_logging.cli.size import command
from inference_logging.cli.size_figures import Fleet, Prices, computed
from inference_logging.segments import segments
from inference_logging.shipping import measured
from inference_logging.shipping.line import Stored
from inference_logging.shipping.s3.staging import Staging
from inference_logging.sizing import Measured, PerRequest, Shape, measure, measure_segments
from tests.command_line import run
from tests.support import Recorded, body_messages, http_scope

Configure = Callable[..., Config]

PRICES = Prices(disk=0.5, network=0.25, core=10.0, storage=2.0)


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


SYNTHETIC = Measured(
    queue_bytes=1000,
    segment_bytes=2000,
    compressed_bytes=100,
    listener_cpu_s=1e-3,
    shipped={"kafka": PerRequest(300, None, 2e-3), "s3": PerRequest(100, 100, 1e-3)},
)


def test_the_figures_of_a_fleet_are_those_of_a_request_times_its_requests() -> None:
    config = Config(queue_bytes="1MiB", sample_ratio=0.5)
    found = computed(config, SYNTHETIC, Fleet(pods=10, processes=2, requests_s=4, keep_s=3600), PRICES)
    assert found["pod"] == {
        "queue_bytes": 2 << 20,
        "queue_lasts_s": pytest.approx((2 << 20) * 0.8 / 2000),
        "written_bytes_s": 4000,
        "kept_s": 3600,
        "disk_bytes": 4000 * 3600,
        "listener_cores": pytest.approx(2e-3),
    }
    money = found["money_month"]
    assert money["disk"] == pytest.approx(10 * 4000 * 3600 / 1e9 * 0.5)
    assert money["total"] == pytest.approx(money["disk"] + 10 * 2e-3 * 10)
    month_s = 30 * 86400
    kafka, s3 = found["shipping"]["kafka"], found["shipping"]["s3"]
    assert (kafka["pod_bytes_s"], kafka["fleet_bytes_s"], kafka["stored_bytes"]) == (600, 6000, None)
    assert kafka["money_month"]["network"] == pytest.approx(6000 * month_s / 1e9 * 0.25)
    assert kafka["money_month"]["total"] == pytest.approx(kafka["money_month"]["network"] + 20 * 2e-3 * 10)
    assert s3["stored_bytes"] == pytest.approx(10 * 2 * 100 * month_s)
    assert s3["money_month"]["storage"] == pytest.approx(s3["stored_bytes"] / 1e9 * 2.0)


def test_an_index_keeps_the_mean_of_its_records_for_each_of_a_request_on_disk() -> None:
    index = Stored(records=1000, bytes=47_000, copies=2, kept_s=90 * 86_400)
    two = SYNTHETIC._replace(records=2.5)

    def found(kept_there_s: float | None, kept_s: float | None) -> Any:
        fleet = Fleet(pods=10, processes=1, requests_s=4, keep_s=3600, kept_there_s=kept_there_s)
        return computed(Config(), two, fleet, PRICES, {"kafka": index._replace(kept_s=kept_s)})["shipping"]["kafka"]

    of_table = found(None, 90 * 86_400)
    assert (of_table["kept_s"], of_table["stored_bytes"]) == (90 * 86_400, 40 * 90 * 86_400 * 2.5 * 2 * 47)
    assert of_table["money_month"]["storage"] == pytest.approx(of_table["stored_bytes"] / 1e9 * PRICES.disk)
    assert found(5, 90 * 86_400)["kept_s"] == 5
    assert found(None, None)["kept_s"] == 30 * 86_400


@given(times=st.integers(2, 1000), pods=st.integers(1, 1000), requests_s=st.floats(0.01, 1000))
def test_figures_are_linear_in_pods_and_in_requests(times: int, pods: int, requests_s: float) -> None:
    def found(**changed: Any) -> dict[str, Any]:
        fleet = Fleet(pods=pods, processes=1, requests_s=requests_s, keep_s=3600, pods_per_node=4)
        return computed(Config(), SYNTHETIC, fleet._replace(**changed), PRICES)

    one, more_pods, more_requests = found(), found(pods=pods * times), found(requests_s=requests_s * times)
    assert one["pod"] == more_pods["pod"]
    assert one["node"]["disk_bytes"] == pytest.approx(4 * one["pod"]["disk_bytes"])
    for more in (more_pods, more_requests):
        for name in ("written_bytes_s", "disk_bytes", "listener_cores"):
            assert more["fleet"][name] == pytest.approx(times * one["fleet"][name])
        for kind in SYNTHETIC.shipped:
            for name in ("fleet_bytes_s", "fleet_cores"):
                assert more["shipping"][kind][name] == pytest.approx(times * one["shipping"][kind][name])
            money, before = more["shipping"][kind]["money_month"], one["shipping"][kind]["money_month"]
            assert money == {name: pytest.approx(times * value) for name, value in before.items()}
    assert more_pods["fleet"]["queue_bytes"] == times * one["fleet"]["queue_bytes"]
    assert more_requests["fleet"]["queue_bytes"] == one["fleet"]["queue_bytes"]


def test_compressed_segments_take_less_disk() -> None:
    measured = Measured(queue_bytes=1000, segment_bytes=2000, compressed_bytes=100, listener_cpu_s=1e-3)
    fleet = Fleet(pods=1, processes=1, requests_s=1, keep_s=10)
    assert computed(Config(compress="zstd"), measured, fleet, PRICES)["pod"]["disk_bytes"] == 1000


def test_a_pod_has_no_more_on_disk_than_its_quota() -> None:
    fleet = Fleet(pods=10, processes=1, requests_s=4, keep_s=1_000_000)
    found = computed(Config(quota_bytes=8000 * 100_000), SYNTHETIC, fleet, PRICES)
    assert (found["pod"]["disk_bytes"], found["pod"]["kept_s"]) == (
        pytest.approx(8000 * 100_000),
        pytest.approx(100_000),
    )
    assert (found["fleet"]["disk_bytes"], found["fleet"]["kept_s"]) == (
        pytest.approx(80000 * 100_000),
        pytest.approx(100_000),
    )
    assert found["money_month"]["disk"] == pytest.approx(80000 * 100_000 / 1e9 * 0.5)
    roomy = computed(Config(quota_bytes="20GiB"), SYNTHETIC, fleet, PRICES)["pod"]
    assert (roomy["disk_bytes"], roomy["kept_s"]) == (8000 * 1_000_000, 1_000_000)


def test_a_quota_that_is_full_before_the_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ("size", "--requests-s", "20", "--tokens", "10", "--to", "s3")
    assert "quota_bytes" not in run(*made).out
    monkeypatch.setenv("INFERENCE_LOGGING_QUOTA_BYTES", "128MiB")
    assert "above quota_bytes then, and would be removed before 7 days are over" in run(*made).out


@pytest.fixture
def recorded(configure: Configure) -> Recorded:
    """Record fifty requests of one stream each, with two records of the application."""
    recorded = Recorded(configure())
    log = recorded.logger.event("step", ["number", "message"])

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        log(1, "prompt was read")
        log(2, "cache was asked")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(20):
            choice = {"index": 0, "delta": {"content": f"word{number}"}}
            event = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "model": "tiny", "choices": [choice]}
            body = b"data: " + json.dumps(event).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
        usage = {"prompt_tokens": 50, "completion_tokens": 20}
        end = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "model": "tiny", "choices": [], "usage": usage}
        body = b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n"
        await send({"type": "http.response.body", "body": body})

    request = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "word " * 50}]}
    headers = [(b"content-type", b"application/json"), (b"user-agent", b"python-httpx/0.28")]
    for _ in range(50):
        scope = http_scope("/v1/chat/completions", "POST", headers)
        recorded.serve(app, scope, body_messages(json.dumps(request).encode()))
    recorded.close()
    return recorded


def lines_of(directory: Path) -> bytes:
    """Return the lines of records."""
    (segment,) = segments(directory)
    lines = segment.path.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if b'"segment.' not in line)


def test_what_is_predicted_for_a_shape_is_what_a_real_run_of_it_writes(recorded: Recorded) -> None:
    written = len(lines_of(recorded.config.directory)) / 50
    predicted = measure(Config(), Shape(input_tokens=50, output_tokens=20, chunks=20, records=2))
    assert predicted.segment_bytes == pytest.approx(written, rel=0.2)


def test_segments_that_are_measured_are_those_files_and_stay_as_they_are(recorded: Recorded) -> None:
    directory = recorded.config.directory
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    shape, found = measure_segments(Config(), directory, measured.KINDS)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    lines = lines_of(directory)
    assert shape._replace(records=2) == Shape(input_tokens=50, output_tokens=20, chunks=shape.chunks, records=2)
    assert found.segment_bytes * 50 == len(lines)
    assert found.compressed_bytes * 50 == len(zstandard.compress(lines, Config().compress_level))
    assert 0.5 < found.queue_bytes / measure(Config(), shape).queue_bytes < 2
    for kind, of_kind in found.shipped.items():
        assert 10 < of_kind.sent_bytes < found.segment_bytes, kind
        assert of_kind.shipper_cpu_s > 0, kind
        assert of_kind.stored_bytes == (of_kind.sent_bytes if kind.startswith("s3") else None)


def test_a_measured_segment_can_be_compressed(recorded: Recorded) -> None:
    directory = recorded.config.directory
    lines = lines_of(directory)
    (segment,) = segments(directory)
    packed = zstandard.compress(segment.path.read_bytes())
    segment.path.with_name(f"{segment.name}.zst").write_bytes(packed)
    segment.path.unlink()
    assert measure_segments(Config(), directory)[1].segment_bytes * 50 == len(lines)


def test_few_requests_in_a_second_are_sent_in_smaller_batches_which_compress_less(recorded: Recorded) -> None:
    few = measure_segments(Config(), recorded.config.directory, measured.IN_BATCHES, requests_s=1)[1].shipped
    many = measure_segments(Config(), recorded.config.directory, measured.IN_BATCHES, requests_s=1000)[1].shipped
    for kind in measured.IN_BATCHES:
        assert few[kind].sent_bytes > 2 * many[kind].sent_bytes, kind


def test_what_is_counted_for_object_storage_is_the_size_of_the_object(recorded: Recorded, tmp_path: Path) -> None:
    (segment,) = segments(recorded.config.directory)
    for kind, form in (("s3", "jsonl.zst"), ("s3-parquet", "parquet")):
        object_bytes = Staging(tmp_path / kind).stage(segment, form).object.bytes
        own = tmp_path / f"own-{kind}"
        own.mkdir()
        shutil.copy(segment.path, own)
        assert measured.ship(own, kind, Config()).stored_bytes == pytest.approx(object_bytes, rel=0.01)


def test_the_command_prints_tables_or_json(recorded: Recorded) -> None:
    made = ("size", "--requests-s", "2", "--tokens", "10")
    found: dict[str, Any] = json.loads(run(*made, "--to", "s3", "--json").out)
    assert set(found) == {"request", "pod", "fleet", "money_month", "shipping"}
    assert set(found["shipping"]) == {"s3"}
    directory = str(recorded.config.directory)
    table = run("size", "--requests-s", "200", "--measure", directory, "--pods", "30", "--pods-per-node", "5").out
    assert "30 pods" in table
    assert "a node of 5" in table
    assert "per month: " in table
    assert [kind for kind in measured.KINDS if f"\n{kind} " in table] == list(measured.KINDS)
    half = json.loads(run(*made, "--to", "s3", "--json", "--sample-ratio", "0.5").out)
    assert half["pod"]["written_bytes_s"] == pytest.approx(found["pod"]["written_bytes_s"] / 2, rel=0.05)


def test_the_destinations_of_the_option_are_those_that_are_measured() -> None:
    (option,) = [parameter for parameter in command.params if parameter.name == "given"]
    for kind in measured.KINDS:
        assert option.type.convert(kind, option, None) == (kind, None)
    for kind in measured.INDEXES:
        assert option.type.convert(f"{kind}+http://a/b", option, None) == (kind, f"{kind}+http://a/b")
    with pytest.raises(click.BadParameter, match=r"'kafka://a:9/b' is none of kafka, .*clickhouse\+https"):
        option.type.convert("kafka://a:9/b", option, None)


def test_a_kind_with_two_servers_and_a_url_of_another_form_are_refused() -> None:
    both = run("size", "--requests-s", "2", "--tokens", "3", "--to", "opensearch", "--to", "opensearch+http://a:9/b")
    assert both.code == 2
    assert "--to opensearch+http://a:9/b: opensearch is there already" in both.err
    wrong = run("size", "--requests-s", "2", "--tokens", "3", "--to", "clickhouse+http://a:9")
    assert wrong.code == 2
    assert "ship_to='clickhouse+http://a:9'" in wrong.err


def test_why_it_is_not_known_what_is_kept_is_said() -> None:
    made = ("size", "--requests-s", "2", "--tokens", "3", "--to", "otlp", "--to", "s3", "--to", "opensearch")
    table = run(*made).out
    assert "otlp: it decides what it keeps.\n" in table
    assert "s3: kept for 30 days.\n" in table
    assert "opensearch: its server was not asked what it keeps; name one that has records: " in table
    assert json.loads(run(*made, "--json").out)["shipping"]["opensearch"]["stored_bytes"] is None


def test_segments_that_cannot_be_measured_are_named(tmp_path: Path) -> None:
    absent = run("size", "--requests-s", "2", "--measure", str(tmp_path / "absent"))
    assert (absent.code, absent.err) == (
        2,
        f"Error: --measure {tmp_path / 'absent'}: no such directory (see inference-logging size --help)\n",
    )
    empty = run("size", "--requests-s", "2", "--measure", str(tmp_path))
    assert empty.code == 2
    assert f"--measure {tmp_path}: there is no record of a request" in empty.err


def test_a_shape_beside_segments_and_neither_of_them_are_refused(tmp_path: Path) -> None:
    both = run("size", "--requests-s", "2", "--measure", str(tmp_path), "--tokens", "3", "--records", "1")
    assert both.code == 2
    assert "--tokens, --records" in both.err
    neither = run("size", "--requests-s", "2")
    assert neither.code == 2
    assert "Missing option '--tokens'" in neither.err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--requests-s", "0"),
        ("--requests-s", "nan"),
        ("--requests-s", "inf"),
        ("--pods", "9" * 400),
        ("--price-disk", "nan"),
        ("--price-disk", "inf"),
        ("--sample-ratio", "nan"),
        ("--keep", "0s"),
        ("--tokens", "-1"),
        ("--pods", "0"),
        ("--pods-per-node", "0"),
        ("--keep", "soon"),
        ("--keep-there", "-3"),
        ("--sample-ratio", "1.5"),
        ("--price-core", "-1"),
        ("--to", "pigeon"),
    ],
)
def test_a_wrong_number_is_refused_by_name(option: str, value: str) -> None:
    given = {"--requests-s": "2", "--tokens": "10", option: value}
    done = run("size", *(part for pair in given.items() for part in pair))
    assert done.code == 2
    assert option in done.err
    assert value in done.err
