"""`ship` to object storage, against a small S3 that fails as a test wants it.

The real server is in `test_fleet.py`; `verify` and `query` are in `test_bucket.py`.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
import zstandard

from inference_logging import Config
from inference_logging.segments import segments as listed
from inference_logging.ship.s3.place import Place, PlaceError
from inference_logging.ship.s3.staging import Staging
from tests.kit.command_line import run
from tests.kit.segment_files import log, write_segment
from tests.kit.signatures import Configure
from tests.kit.support import wait_until
from tests.ship.arrived import written_lines
from tests.ship.bucket import NAME, Bucket, Request, Stored, content, faults, segments, ship, signed_at, write
from tests.ship.programs import scraped
from tests.ship.shippers import SHIP

pytestmark = pytest.mark.servers
MIB = 1 << 20


@pytest.fixture
def config(configure: Configure) -> Config:
    return configure(rotate_bytes=65536, service_name="chat")


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


def test_a_stop_waits_for_a_listener_to_seal_its_segment_and_ships_it(tmp_path: Path, bucket: Bucket) -> None:
    path = write_segment(tmp_path, [log(1)])
    command = [*SHIP, "--directory", str(tmp_path), "--to", bucket.url, "--metrics-port", "0"]
    with path.open("rb") as held, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(" ")[2])
        wait_until(lambda: scraped(port, "inference_logging_ship_lag_bytes") == path.stat().st_size, "a look")
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        fcntl.flock(held, fcntl.LOCK_UN)
        assert process.wait(60) == 0
        assert "records=1 lag_bytes=0" in process.stderr.read()
    assert len(bucket.named()) == 2


def test_another_content_under_the_key_is_an_error_that_names_both(tmp_path: Path, bucket: Bucket) -> None:
    path = write_segment(tmp_path, [log(1)])
    assert ship(tmp_path, bucket.url).code == 0
    (key,) = bucket.named(".zst")
    there = bucket.objects[key]
    path.with_name(f"{path.name}.shipped-s3").unlink()
    write_segment(tmp_path, [log(2)])
    done = ship(tmp_path, bucket.url)
    assert done.code == 1
    assert f"s3://{NAME}/{key}: already exists" in done.err
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
    command = [*SHIP, "--directory", str(tmp_path), "--to", url]
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
    assert (done.code, "day: unknown option" in done.err) == (2, True)
    done = run("verify", bucket.url, str(tmp_path))
    assert (done.code, "goes only with" in done.err) == (2, True)
    with pytest.raises(PlaceError, match="hour='25'"):
        Place.parse("s3://bucket/x?hour=25")


def test_the_end_of_a_line_that_was_not_written_is_no_record(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1)], sealed=False, tail=b'{"timestamp":"2026')
    staged = Staging(tmp_path / ".staging").stage(listed(tmp_path)[0], "jsonl.zst")
    assert staged.account.records == 1
    assert staged.plain.bytes == segments(tmp_path)[0].stat().st_size - len(b'{"timestamp":"2026')
