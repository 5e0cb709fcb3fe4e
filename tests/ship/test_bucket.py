"""What is in a bucket: `verify` proves it or names the object, `query` answers from it, `--restore` brings it back."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config, Logger
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment
from tests.kit.signatures import Configure
from tests.kit.view_server import started
from tests.ship.arrived import written_lines
from tests.ship.bucket import CREDENTIALS, NAME, Bucket, Stored, faults, rows, ship, write

pytestmark = pytest.mark.servers


@pytest.fixture
def config(configure: Configure) -> Config:
    return configure(rotate_bytes=65536, service_name="chat")


# --- verify ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, dict[str, Stored]]:
    """Write three segments and more, and ship them once: each test gets a copy of the bucket."""
    folder = tmp_path_factory.mktemp("shipped")
    made = Config(directory=folder / "logs", queue_directory=folder / "queues", service_name="chat", rotate_bytes=65536)
    write(made, 600)
    with pytest.MonkeyPatch.context() as patch, Bucket() as serving:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        assert ship(made.directory, serving.url).code == 0
        assert len(serving.named(".zst")) >= 3
        return made, serving.objects


@pytest.fixture
def shipped(objects: tuple[Config, dict[str, Stored]], bucket: Bucket) -> Bucket:
    bucket.objects = copy.deepcopy(objects[1])
    return bucket


def test_verify_names_the_object_that_was_removed(shipped: Bucket) -> None:
    key = shipped.named(".zst")[1]
    del shipped.objects[key]
    found = dict(faults(shipped.url))
    assert f"s3://{NAME}/{key}: is not there" in found["removed"]
    assert "segment_missing" in found["missing"], "and the sequences that were in it"


def test_a_place_with_nothing_in_it_is_a_fault_that_names_it(shipped: Bucket) -> None:
    done = run("verify", f"{shipped.url}&service=nobody")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("nothing: s3://logs/here/: no object and no manifest exists of service=nobody\n")
    shipped.objects.clear()
    assert faults(shipped.url) == [("nothing", "s3://logs/here/: no object and no manifest exists")]


def test_where_no_object_is_left_each_is_named_and_nothing_else(shipped: Bucket) -> None:
    for key in shipped.named(".zst"):
        del shipped.objects[key]
    assert {kind for kind, _ in faults(shipped.url)} == {"removed"}


@pytest.mark.parametrize("folder", ["here/", "here/service=chat/", "here/_manifest/", "here/_manifest/service=chat/"])
def test_a_folder_that_a_console_made_is_no_fault(shipped: Bucket, folder: str) -> None:
    shipped.objects[folder] = Stored(folder)
    assert faults(shipped.url) == []
    assert rows(shipped.url, "SELECT count(*) AS n FROM records") != [{"n": 0}]
    shipped.objects[folder] = Stored(folder, b"something")
    assert [kind for kind, _ in faults(shipped.url)] == ["manifest" if "_manifest" in folder else "no_manifest"]


def test_verify_finds_a_gap_where_object_and_manifest_were_removed(shipped: Bucket) -> None:
    key = shipped.named(".zst")[1]
    del shipped.objects[key], shipped.objects[shipped.named(".json")[1]]
    assert [kind for kind, _ in faults(shipped.url)] == ["missing"]


def test_verify_names_the_object_that_was_altered(shipped: Bucket) -> None:
    key = shipped.named(".zst")[0]
    raw = bytearray(shipped.objects[key].content)
    raw[len(raw) // 2] ^= 1
    shipped.objects[key].content = bytes(raw)
    assert f"s3://{NAME}/{key}: {len(raw)} bytes of sha256" in dict(faults(shipped.url))["altered"]


def test_verify_names_each_copy_of_an_object(shipped: Bucket) -> None:
    key = shipped.named(".zst")[0]
    folder, _, name = key.rpartition("/")
    copies = [
        "here/copy.jsonl.zst",
        f"here/service=chat/date=2020-01-01/hour=00/pod=x/{name}",
        f"{folder}/copy",
        f"{folder}/z-{name}",
    ]
    for one in copies:
        shipped.objects[one] = shipped.objects[key]
    named = [f"s3://{NAME}/{one}: is a copy of s3://{NAME}/{key}" for one in copies]
    assert sorted(faults(shipped.url)) == sorted(("doubled", text) for text in named)


def test_verify_names_the_copy_of_a_manifest_and_of_both(shipped: Bucket) -> None:
    key, manifest = shipped.named(".zst")[0], shipped.named(".json")[0]
    shipped.objects["here/_manifest/copy.json"] = shipped.objects[manifest]
    other = key.replace("/hour=", "/hour=0").replace("here/", "here/again/")
    shipped.objects[other] = shipped.objects[key]
    said = json.loads(shipped.objects[manifest].content)
    said["object"]["key"] = other.removeprefix("here/")
    moved = f"here/_manifest/{other.removeprefix('here/')}.json"
    shipped.objects[moved] = type(shipped.objects[manifest])(moved, json.dumps(said).encode())
    found = dict(faults(shipped.url))
    assert "here/_manifest/copy.json: it is the manifest of" in found["manifest"]
    assert f"s3://{NAME}/{other}" in found["doubled"]
    assert f"s3://{NAME}/{key}" in found["doubled"]


def test_verify_names_a_manifest_that_is_missing_or_says_something_else(shipped: Bucket) -> None:
    key, other = shipped.named(".zst")[0], shipped.named(".json")[1]
    del shipped.objects[shipped.named(".json")[0]]
    said = json.loads(shipped.objects[other].content)
    said["records"] += 1
    shipped.objects[other].content = json.dumps(said).encode()
    found = dict(faults(shipped.url))
    assert f"s3://{NAME}/{key}: no manifest names it" in found["no_manifest"]
    assert f"s3://{NAME}/{other}: says {said['records']} records" in found["manifest"]


def test_restored_segments_are_the_segments(
    objects: tuple[Config, dict[str, Stored]], shipped: Bucket, tmp_path: Path
) -> None:
    config = objects[0]
    assert faults(shipped.url, "--restore", str(tmp_path / "back")) == []
    assert written_lines(tmp_path / "back") == written_lines(config.directory)
    done = run("verify", str(tmp_path / "back"), "--queue-directory", str(config.resolved_queue_directory))
    assert done.code == 0, done
    assert run("verify", shipped.url, "--restore", str(tmp_path / "back")).code == 2, "it is not empty any more"


def test_a_running_process_is_a_note_and_a_range_of_dates_begins_where_it_begins(
    tmp_path: Path, bucket: Bucket
) -> None:
    write_segment(tmp_path, [log(0.0), log(0.001)], sealed=False)
    write_segment(tmp_path, [log(0.002)], number=2, second=7 * 86400, sealed=False)
    assert ship(tmp_path, bucket.url).code == 0
    report = json.loads(run("verify", f"{bucket.url}&date=2026-11-28..", "--json").out)
    assert (report["objects"], report["problems"]) == (1, [])
    assert {note["kind"] for note in report["notes"]} == {"end_unknown", "missing"}
    assert json.loads(run("verify", f"{bucket.url}&date=..2026-11-22", "--json").out)["records"] == 2


# --- Parquet and query -----------------------------------------------------------------------------------------------


QUESTIONS = [
    "SELECT count(*) AS n, sum(duration_s) AS s FROM requests",
    "SELECT count(*) AS n, max(seq) AS last FROM logs",
    'SELECT event_name, "service.name" AS service, count(*) AS n FROM records GROUP BY ALL ORDER BY ALL',
]


@pytest.mark.parametrize("form", ["jsonl.zst", "parquet"])
def test_query_answers_from_a_bucket_as_from_the_segments(
    tmp_path: Path, bucket: Bucket, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory, resource = tmp_path / "segments", {"service.name": "svc", "k8s.pod.name": "p"}
    write_segment(directory, [request(1), request(2, "error", duration_s=2.5), log(3)], resource=resource)
    later = [request(4), log(5, attributes={"a": 1}, n="7")]
    write_segment(directory, later, number=2, second=86400, resource=resource)
    assert ship(directory, f"{bucket.url}&format={form}").code == 0
    for question in QUESTIONS:
        assert rows(bucket.url, question) == rows(str(directory), question)
    done = run("stats", bucket.url)
    assert (done.code, "only query reads" in done.err) == ((0, False) if form == "jsonl.zst" else (2, True)), done
    asked = len(bucket.asked)
    assert rows(f"{bucket.url}&date=2026-11-22&service=svc", "SELECT count(*) AS n FROM records") == [{"n": 2}]
    reads = [one for one in bucket.asked[asked:] if one.startswith("GET") and "list-type" not in one]
    assert len(reads) == 1, "a manifest; its object is in the cache, and no other is asked for"
    key = bucket.named(form)[0]
    bucket.objects[key].content += b"x"
    for file in (tmp_path / "cache").rglob("objects/*"):
        file.unlink()
    done = run("query", QUESTIONS[0], bucket.url)
    assert (done.code, f"s3://{NAME}/{key}" in done.err) == (1, True)


def test_view_shows_what_is_in_a_bucket(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_segment(tmp_path / "segments", [request(1), request(2, "error")])
    assert ship(tmp_path / "segments", bucket.url).code == 0
    with started(f"{bucket.url}&service=unknown", bucket.url, cache=tmp_path / "cache") as view:
        view.wait_for_rows(2)
        _, found = view.get("api/rows")
        assert len(found["rows"]) == 2


def test_view_refuses_a_bucket_of_parquet_files(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_segment(tmp_path / "segments", [request(1)])
    assert ship(tmp_path / "segments", f"{bucket.url}&format=parquet").code == 0
    done = run("view", "--no-browser", bucket.url)
    assert (done.code, "only query reads" in done.err) == (2, True), done


HOSTILE = [
    log(1, attributes={"a": [1, {"b": None}]}, extra={"x": 1}),
    log(2, "nul \0 inside", seq=2**63 - 1),
    request(3) | {"duration_s": "no number", "http.response.status_code": [1], "service.name": "mine", "other": 1},
    request(4) | {"gen_ai.response.finish_reasons": ["stop", 1], "gen_ai.request.stream": "yes"},
    {"timestamp": "never", "event_name": "odd", "boot_id": 7},
]


def test_a_parquet_file_has_every_record_also_with_values_that_fit_no_column(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_segment(tmp_path / "in", HOSTILE)
    assert ship(tmp_path / "in", f"{bucket.url}&format=parquet").code == 0
    back = rows(bucket.url, "SELECT * FROM records")
    assert len(back) == len(HOSTILE)
    for record, row in zip(HOSTILE, back, strict=True):
        other = row.pop("other") or {}
        for name, value in record.items():
            found = other[name] if name in other else row[name]
            if name != "timestamp":
                assert found == value, name


def test_verify_counts_the_rows_of_parquet_files(config: Config, bucket: Bucket) -> None:
    write(config, 600)
    url = f"{bucket.url}&format=parquet"
    assert ship(config.directory, url).code == 0
    assert len(bucket.named(".parquet")) >= 3
    assert faults(bucket.url) == []
    key = bucket.named(".parquet")[1]
    other = bucket.objects[bucket.named(".parquet")[0]].content
    bucket.objects[key].content = other
    assert {kind for kind, _ in faults(bucket.url)} == {"altered", "missing"}


def test_the_audit_lane_goes_along_and_its_chain_is_checked_in_the_bucket(
    open_: Callable[..., Logger], tmp_path: Path, bucket: Bucket
) -> None:
    logger = open_()
    for number in range(5):
        assert asyncio.run(logger.audit("access", n=number))
    logger.close()
    assert ship(tmp_path / "logs", bucket.url, "--service-name", "t").code == 0
    (key,) = [key for key in bucket.named(".zst") if "/t-audit-" in key]
    assert key.startswith("here/service=t/")
    report = json.loads(run("verify", bucket.url, "--json").out)
    assert report["problems"] == []
    assert report["books"]["chain"]
