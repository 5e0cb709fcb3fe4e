"""`ship` to object storage, `verify` and `query` of it, against a small S3 that fails as it is told.

The real server is in `test_object_storage_real.py`.
"""

from __future__ import annotations

import copy
import fcntl
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard

from inference_logging import Config, Logger, get_logger
from inference_logging.segments import segments as listed
from inference_logging.shipping.s3.place import Place, PlaceError
from inference_logging.shipping.s3.staging import Staging
from tests.command_line import Done, run
from tests.segment_files import log, request, write_segment
from tests.shipping.arrived import written_lines
from tests.shipping.bucket import CREDENTIALS, NAME, Bucket, Request, Stored, signed_at
from tests.support import wait_until

pytestmark = pytest.mark.servers
Configure = Callable[..., Config]
MIB = 1 << 20


@pytest.fixture
def config(configure: Configure) -> Config:
    return configure(rotate_bytes=65536, service_name="chat")


def write(config: Config, count: int = 1000) -> None:
    with Logger(config) as logger:
        for number in range(count):
            assert get_logger("t").info("n", n=number, some="x" * 100)
            if number % 10 == 9:
                assert logger.flush()


def ship(directory: Path, url: str, *more: str) -> Done:
    return run("ship", "--directory", str(directory), "--to", url, "--once", *more)


def segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.jsonl") if not path.is_symlink())


def content(bucket: Bucket, key: str) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(bucket.objects[key].content)).read()


def faults(url: str, *more: str) -> list[tuple[str, str]]:
    done = run("verify", url, "--json", *more)
    report = json.loads(done.out)
    assert done.code == (1 if report["problems"] else 0), done
    return [(problem["kind"], problem["text"]) for problem in report["problems"]]


# --- put -------------------------------------------------------------------------------------------------------------


def test_each_sealed_segment_is_one_object_with_its_manifest_and_verify_is_green(
    config: Config, bucket: Bucket
) -> None:
    bucket.page = 3  # listings have several pages
    write(config)
    names = [path.name for path in segments(config.directory)]
    assert len(names) > 3
    done = ship(config.directory, bucket.url)
    assert (done.code, "lag_bytes=0" in done.err) == (0, True), done
    keys = [key for key in bucket.named() if "/_manifest/" not in key]
    assert [key.rpartition("/")[2] for key in keys] == [f"{name}.zst" for name in names]
    assert all(key.startswith("here/service=chat/date=20") and "/hour=" in key and "/pod=" in key for key in keys)
    assert bucket.named(".json") == [f"here/_manifest/{key.removeprefix('here/')}.json" for key in keys]
    lines = [line for key in keys for line in content(bucket, key).splitlines() if b'"segment.' not in line]
    assert lines == written_lines(config.directory)
    said = json.loads(bucket.objects[bucket.named(".json")[0]].content)
    assert (said["segment"], said["sealed"], said["format"]) == (names[0], True, "jsonl.zst")
    assert said["processes"] == said["footer"]["spans"], "counted as the listener has counted"
    assert faults(bucket.url) == []
    assert sorted(path.name for path in config.directory.glob("*.shipped-s3")) == [f"{n}.shipped-s3" for n in names]
    before = dict(bucket.objects)
    for mark in config.directory.glob("*.shipped-s3"):
        mark.unlink()
    assert ship(config.directory, bucket.url).code == 0
    assert bucket.objects == before, "a second shipper puts nothing"


def test_a_live_segment_waits_for_its_end_and_compression_does_not_change_what_is_there(
    tmp_path: Path, bucket: Bucket
) -> None:
    path = write_segment(tmp_path, [log(1), log(2)], resource={"service.name": "svc", "k8s.pod.name": "pod 1/a"})
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = ship(tmp_path, bucket.url)
        assert (done.code, bucket.named()) == (0, [])
        assert "live_segments=1" in done.err
    assert ship(tmp_path, bucket.url).code == 0
    (key,) = bucket.named(".jsonl.zst")
    assert key.startswith("here/service=svc/date=2026-11-21/hour=05/pod=pod%201%2Fa/svc-")
    path.with_name(f"{path.name}.shipped-s3").unlink()
    compressed = path.with_name(f"{path.name}.zst")
    compressed.write_bytes(zstandard.ZstdCompressor(level=19).compress(path.read_bytes()))
    path.unlink()
    assert ship(tmp_path, bucket.url).code == 0
    assert path.with_name(f"{path.name}.shipped-s3").exists(), "the same lines count as delivered, whatever their form"


def test_another_content_under_the_key_is_an_error_that_names_both(tmp_path: Path, bucket: Bucket) -> None:
    path = write_segment(tmp_path, [log(1)])
    assert ship(tmp_path, bucket.url).code == 0
    (key,) = bucket.named(".zst")
    there = bucket.objects[key]
    path.with_name(f"{path.name}.shipped-s3").unlink()
    write_segment(tmp_path, [log(2)])
    done = ship(tmp_path, bucket.url)
    assert done.code == 1
    assert f"s3://{NAME}/{key}: is there" in done.err
    assert there.metadata["segment-sha256"] in done.err
    assert str(path) in done.err
    assert not path.with_name(f"{path.name}.shipped-s3").exists(), "retention keeps it"


@pytest.mark.parametrize(("is_same", "in_parts"), [(True, False), (False, False), (False, True)])
def test_of_two_shippers_at_once_one_wins_and_the_other_sees_what_is_there(
    tmp_path: Path, bucket: Bucket, is_same: bool, in_parts: bool
) -> None:
    path = big(tmp_path, 6) if in_parts else write_segment(tmp_path, [log(1)])
    made = Staging(tmp_path / ".other").stage(listed(tmp_path)[0], "jsonl.zst")
    about = {"segment-sha256": made.plain.sha256 if is_same else "0" * 64, "object-sha256": made.object.sha256}
    first = made.path.read_bytes()

    def is_faster(request: Request) -> bool:
        is_last = "uploadId" in request.asks if in_parts else request.command == "PUT"
        if is_last and request.command != "DELETE" and request.key.endswith(".zst"):
            bucket.objects.setdefault(request.key, Stored(request.key, first, about))
        return False

    bucket.faults.append(is_faster)
    assert ship(tmp_path, f"{bucket.url}&part_bytes={5 * MIB}").code == (0 if is_same else 1)
    assert bucket.uploads == {}
    (key,) = bucket.named(".zst")
    assert (bucket.objects[key].content, bucket.objects[key].metadata) == (first, about), "the first one stays"
    assert path.with_name(f"{path.name}.shipped-s3").exists() == is_same


def big(directory: Path, mib: int = 12) -> Path:
    """Write a segment whose object has several parts."""
    return write_segment(directory, [log(at, os.urandom(MIB // 2).hex()) for at in range(2 * mib)])


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["put", "complete"])
def test_an_answer_that_is_lost_leaves_one_object(tmp_path: Path, bucket: Bucket, at: str) -> None:
    big(tmp_path, 6 if at == "complete" else 1)

    def served_and_cut(request: Request) -> bool:
        is_meant = "_manifest" not in request.path and (
            request.command == "POST" and "uploadId" in request.asks if at == "complete" else request.command == "PUT"
        )
        if is_meant:
            request.body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
            request.wfile = io.BytesIO()
            (request._post if at == "complete" else request._put)()
            request.reset()
        return is_meant

    bucket.faults.append(served_and_cut)
    assert ship(tmp_path, f"{bucket.url}&part_bytes={5 * MIB}").code == 0
    assert bucket.faults == [], "it was cut"
    assert len(bucket.named()) == 2
    assert content(bucket, bucket.named(".zst")[0]) == segments(tmp_path)[0].read_bytes()


def test_a_server_that_throttles_and_connections_that_break_are_tried_again(tmp_path: Path, bucket: Bucket) -> None:
    big(tmp_path, 7)
    slow = [lambda r: r.command == "PUT" and r.error(503, "SlowDown")] * 5
    cut = [lambda r: "partNumber" in r.path and r.reset()] * 3
    bucket.faults += [*slow, *cut, lambda r: r.error(429, "TooManyRequests", Retry_After="0")]
    done = run("ship", "--directory", str(tmp_path), "--to", f"{bucket.url}&part_bytes={5 * MIB}", "--once")
    assert done.code == 0, done
    assert bucket.faults == []
    assert len(bucket.named()) == 2
    assert bucket.uploads == {}
    assert content(bucket, bucket.named(".zst")[0]) == segments(tmp_path)[0].read_bytes()


def test_a_clock_that_is_wrong_is_corrected_by_the_servers(tmp_path: Path, bucket: Bucket) -> None:
    write_segment(tmp_path, [log(1)])
    server = datetime.now(timezone.utc) + timedelta(hours=5)
    refused = 0

    def is_skewed(request: Request) -> bool:
        nonlocal refused
        signed = datetime.strptime(signed_at(request), "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        if abs(signed - server) < timedelta(minutes=15):
            return False
        refused += 1
        # As S3: a HEAD has no body that could name the reason.
        request.error(403, "RequestTimeTooSkewed", Date=format_datetime(server, usegmt=True))
        bucket.faults.append(is_skewed)
        return True

    bucket.faults.append(is_skewed)
    assert ship(tmp_path, bucket.url).code == 0
    assert refused <= 2
    assert len(bucket.named()) == 2


def test_a_shipper_that_is_killed_in_the_middle_of_an_upload_leaves_one_object_and_no_upload(
    tmp_path: Path, bucket: Bucket
) -> None:
    path = big(tmp_path)
    url = f"{bucket.url}&part_bytes={5 * MIB}"
    hung, end = threading.Event(), threading.Event()

    def hangs(request: Request) -> bool:
        if "partNumber=2" not in request.path:
            return False
        hung.set()
        bucket.lock.release()
        end.wait(30)
        bucket.lock.acquire()
        request.reset()
        return True

    bucket.faults.append(hangs)
    command = [sys.executable, "-m", "inference_logging.cli.main", "ship", "--directory", str(tmp_path), "--to", url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        assert hung.wait(30)
        process.kill()
    end.set()
    wait_until(lambda: not bucket.faults, "the request to end")
    assert (len(bucket.uploads), bucket.named()) == (1, [])
    assert ship(tmp_path, url).code == 0
    assert bucket.uploads == {}, "the upload of the earlier life is aborted"
    assert content(bucket, bucket.named(".zst")[0]) == path.read_bytes()
    assert len(bucket.named()) == 2
    assert sum("partNumber" in asked for asked in bucket.asked) == 2 + 3, "two of the first life, three of the next"
    assert not (tmp_path / ".s3.staging").exists()


def test_what_cannot_work_is_said_with_its_name(tmp_path: Path, bucket: Bucket) -> None:
    done = run("ship", "--directory", str(tmp_path), "--to", "s3://x", "--once")
    assert (done.code, "ship_to='s3://x'" in done.err) == (2, True)
    done = run("ship", "--directory", str(tmp_path), "--to", f"{bucket.url}&part_bytes=5", "--once")
    assert (done.code, "part_bytes=5: must be bytes, 5242880 or more" in done.err) == (2, True)
    done = run("verify", "s3://bucket/x?day=1")
    assert (done.code, "day: no such option" in done.err) == (2, True)
    done = run("verify", bucket.url, str(tmp_path))
    assert (done.code, "stands alone" in done.err) == (2, True)
    with pytest.raises(PlaceError, match="hour='25'"):
        Place.parse("s3://bucket/x?hour=25")


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


def rows(url: str, sql: str) -> list[dict[str, Any]]:
    done = run("query", sql, url, "--format", "json")
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


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


def test_the_end_of_a_line_that_was_not_written_is_no_record(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1)], sealed=False, tail=b'{"timestamp":"2026')
    staged = Staging(tmp_path / ".staging").stage(listed(tmp_path)[0], "jsonl.zst")
    assert staged.account.records == 1
    assert staged.plain.bytes == segments(tmp_path)[0].stat().st_size - len(b'{"timestamp":"2026')
