"""What tests of object storage do: write segments, ship them into a bucket, look into it, and verify it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import zstandard

from inference_logging import Config, Logger, get_logger
from tests.kit.command_line import Done, run
from tests.ship.bucket import Bucket


def write(config: Config, count: int = 1000) -> None:
    """Write records in many batches."""
    with Logger(config) as logger:
        for number in range(count):
            assert get_logger("t").info("n", n=number, some="x" * 100)
            if number % 10 == 9:
                assert logger.flush()


def ship(directory: Path, url: str, *more: str) -> Done:
    """Ship what is sealed."""
    return run("ship", "--directory", str(directory), "--to", url, "--once", *more)


def segments(directory: Path) -> list[Path]:
    """Return the plain segments."""
    return sorted(path for path in directory.glob("*.jsonl") if not path.is_symlink())


def content(bucket: Bucket, key: str) -> bytes:
    """Return the lines in an object."""
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(bucket.objects[key].content)).read()


def faults(url: str, *more: str) -> list[tuple[str, str]]:
    """Return the faults that `verify` finds: kind and sentence."""
    done = run("verify", url, "--json", *more)
    report = json.loads(done.out)
    assert done.code == (1 if report["problems"] else 0), done
    return [(problem["kind"], problem["text"]) for problem in report["problems"]]
