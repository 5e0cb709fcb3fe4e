"""Retention, quota, compression across processes: live segments stay, nothing goes unreported, a kill loses nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from inference_logging.errors import ConfigError
from inference_logging.segments import Segment, follow_records, read_records, segments
from tests.kit.support import wait_until

pytestmark = pytest.mark.servers

SMALL = {"rotate_bytes": "4KiB", "service_name": "svc"}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Logger]]:
    """Open loggers that share one directory of segments, each with a queue directory of its own."""
    loggers: list[Logger] = []

    def open_one(**parameters: Any) -> Logger:
        own = {"directory": tmp_path / "logs", "queue_directory": tmp_path / f"queues-{len(loggers)}"}
        loggers.append(Logger(Config(**{**SMALL, **own, "queue_bytes": "1MiB", **parameters})))
        return loggers[-1]

    yield open_one
    for logger in loggers:
        logger.close()


def fill(logger: Logger, batches: int, text: str = "x" * 3000) -> None:
    """Write ``batches`` batches, each of which fills a segment but for the last, which is live."""
    emit = logger.event("step", ["n", "text"])
    for n in range(batches):
        assert emit(n, text)
        assert logger.flush()


def housekeeping(logger: Logger) -> dict[str, Any]:
    stats = logger.stats()["listener"]
    return {name: stats[name] for name in ("segments_removed", "removed_bytes", "segments_compressed")}


def threads() -> dict[str, int]:
    """Return the nice value of this process's threads by their name."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            found[name] = int(rest.split()[16])
    return found


def names(directory: Path) -> set[str]:
    return {segment.name for segment in segments(directory)}


def test_the_quota_removes_the_oldest_of_all_services_that_share_a_directory_but_no_live_segment(
    opened: Callable[..., Logger], tmp_path: Path
) -> None:
    writers = [opened(), opened()]
    for writer in writers:
        fill(writer, 6)
    before = segments(tmp_path / "logs")
    live = {segment.name for segment in before if segment == latest(before, segment.boot_id)}
    assert (len(before), len(live)) == (12, 2)
    sizes = {segment.name: segment.size_bytes() for segment in before}
    keeper = opened(quota_bytes="16KiB")

    def removed() -> int:
        return int(housekeeping(keeper)["segments_removed"]["quota"])

    wait_until(removed, "the first round")
    gone = set(sizes) - names(tmp_path / "logs")
    sealed = [segment for segment in sizes if segment not in live]
    assert gone == set(sealed[: len(gone)]), "others than the oldest sealed ones were removed"
    assert sum(sizes.values()) - sum(sizes[name] for name in gone) <= 16 << 10
    assert housekeeping(keeper)["segments_removed"] == {"age": 0, "quota": len(gone), "unshipped": 0}
    assert housekeeping(keeper)["removed_bytes"]["quota"] == sum(sizes[name] for name in gone)
    assert keeper.flush()
    (reported,) = (record for record in read_records(tmp_path / "logs") if record["event_name"] == "segments.removed")
    assert (reported["reason"], reported["segments"], reported["severity_text"]) == ("quota", len(gone), "WARN")
    assert (reported["oldest"], reported["newest"]) == (min(gone), max(gone))
    assert reported["bytes"] == sum(sizes[name] for name in gone)


def latest(listed: list[Segment], boot_id: str) -> Segment:
    return max(segment for segment in listed if segment.boot_id == boot_id)


def test_old_segments_are_removed_and_a_live_one_of_another_process_only_once_that_is_killed(
    opened: Callable[..., Logger], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with running(tmp_path, "other", "off") as process:
        (live,) = segments(logs)
        sealed = logs / "svc-20200101T000000.000Z-00000000deadbeef-000001.jsonl"
        for path in (live.path, sealed):
            path.touch()
            os.utime(path, (1, 1))
        sealed.write_bytes(b"{}\n")
        os.utime(sealed, (1, 1))
        keeper = opened(retention_s=0.001)
        wait_until(lambda: not sealed.exists(), "the removal of the sealed segment")
        wait_until(lambda: housekeeping(keeper)["segments_removed"]["age"] == 1, "the count")
        assert live.path.exists()
        process.kill()
        process.wait()
    opened(retention_s=0.001)
    wait_until(lambda: not live.path.exists(), "the removal of the killed process's segment")


def test_a_killed_writers_segment_is_compressed_and_its_records_can_still_be_read(
    opened: Callable[..., Logger], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with running(tmp_path, "other", "off") as process:
        (live,) = segments(logs)
        fill(opened(), 3)
        keeper = opened(compress="zstd", compress_keep_segments=1)
        wait_until(lambda: housekeeping(keeper)["segments_compressed"], "the first compression")
        assert live.path.exists(), "a live segment was compressed"
        process.kill()
        process.wait()
    opened(compress="zstd", compress_keep_segments=1)
    wait_until(lambda: not live.path.exists(), "the compression of the killed process's segment")
    records = list(read_records(live.path.with_suffix(".jsonl.zst")))
    assert [record["n"] for record in records] == [1]


def running(tmp_path: Path, queues: str, compress: str, level: int = 19) -> subprocess.Popen[str]:
    """Start a process that writes one record and then waits; its housekeeper compresses if asked to."""
    arguments = [str(tmp_path / "logs"), str(tmp_path / queues), compress, str(level)]
    process = subprocess.Popen(
        [sys.executable, "-c", _LOG_AND_WAIT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


_LOG_AND_WAIT = """
import sys
from inference_logging import Config, Logger
directory, queues, compress, level = sys.argv[1:]
logger = Logger(Config(
    service_name="svc", directory=directory, queue_directory=queues, queue_bytes="1MiB", compress=compress,
    compress_level=level, compress_keep_segments=1,
))
assert logger.event("step", ["n"])(1) and logger.flush(60)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_follower_misses_nothing_while_segments_are_compressed_and_the_quota_is_kept(
    opened: Callable[..., Logger], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logger = opened(compress="zstd", compress_keep_segments=1, quota_bytes="64KiB")
    emit = logger.event("step", ["n", "noise"])
    rng = random.Random(1)
    sent = 0

    class Writing:
        """Writes on until something was removed and something compressed, each segment followed before the next."""

        def wait(self, timeout: float, /) -> bool:
            nonlocal sent
            for _ in range(4):
                assert emit(sent, f"{rng.getrandbits(4000):x}")
                sent += 1
            assert logger.flush()
            counts = housekeeping(logger)
            return bool(counts["segments_removed"]["quota"] and counts["segments_compressed"])

    records = [r["n"] for r in follow_records(logs, begin="start", stop=Writing()) if r["event_name"] == "step"]
    assert records == list(range(sent))
    assert logger.close()
    wait_until(lambda: "inference-house" not in threads(), "the end of the housekeeper: it removes on while we read")
    left = {record["n"] for record in read_records(logs) if record["event_name"] == "step"}
    assert left == set(range(min(left), sent)), "others than the oldest are missing"


def write_sealed(logs: Path, seed: int) -> None:
    """Write a sealed segment that takes zstd's highest level seconds: lines that are little alike."""
    rng = random.Random(seed)
    logs.mkdir(exist_ok=True)
    lines = [b'{"event_name":"old","n":%d,"text":"%x"}\n' % (n, rng.getrandbits(2000)) for n in range(12_000)]
    (logs / f"svc-20200101T00000{seed}.000Z-00000000deadbeef-{seed:06}.jsonl").write_bytes(b"".join(lines))


def test_a_process_killed_in_the_middle_of_compressing_leaves_every_record_once(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for seed in (1, 2, 3, 4):
        write_sealed(logs, seed)
    expected = [(path, n) for path in sorted(names(logs)) for n in range(12_000)]

    def found() -> list[tuple[str, int]]:
        listed = [segment for segment in segments(logs) if segment.begun.year == 2020]
        return [(segment.name, record["n"]) for segment in listed for record in read_records(segment.path)]

    def stops_in_the_middle(process: subprocess.Popen[str]) -> bool:
        """Whether the process stands still with a part of a segment compressed; else it has gone on."""
        if not unfinished():
            return False
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        if unfinished():
            return True
        process.send_signal(signal.SIGCONT)
        return False

    def unfinished() -> list[Path]:
        return [path for path in logs.glob(".*.tmp") if path.stat().st_size]

    for kill in range(3):
        with running(tmp_path, f"queues-{kill}", "zstd") as process:
            wait_until(partial(stops_in_the_middle, process), "a compression")
            process.kill()
            process.wait()
        assert unfinished()
        assert found() == expected
    with running(tmp_path, "queues-last", "zstd", level=1) as process:
        wait_until(lambda: all(s.compressed for s in segments(logs) if s.begun.year == 2020), "all compressed")
        process.communicate("")
    # Its own segment may be half compressed: the end of a process does not wait for that.
    assert list(logs.glob(".svc-2020*.tmp")) == []
    assert found() == expected


def test_the_housekeepers_end_does_not_hold_a_shutdown_up(opened: Callable[..., Logger], tmp_path: Path) -> None:
    write_sealed(tmp_path / "logs", 1)
    write_sealed(tmp_path / "logs", 2)
    logger = opened(compress="zstd", compress_keep_segments=1, compress_level=19, drain_deadline_s=0)
    wait_until(lambda: list((tmp_path / "logs").glob(".*.tmp")), "a compression")
    assert logger.close()


def test_a_quota_that_cannot_hold_a_live_and_a_sealed_segment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"quota_bytes=100: must be 0 or at least 134217728"):
        Config(quota_bytes=100)
    assert Config(quota_bytes="128MiB").quota_bytes == 128 << 20


def test_without_a_limit_no_thread_is_there_and_with_one_it_has_the_lowest_priority(
    opened: Callable[..., Logger], tmp_path: Path
) -> None:
    wait_until(lambda: "inference-house" not in threads(), "the end of those of earlier tests")
    fill(opened(), 1)
    assert "inference-house" not in threads()
    fill(opened(quota_bytes="1GiB"), 1)
    wait_until(lambda: threads().get("inference-house") == 19, "the housekeeper at the lowest priority")
    assert threads()["inference-log"] < 19
