"""What the tests of the audit lane share: loggers that have one, and what stands in its segments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference_logging import Logger
from tests.kit.command_line import run

Open = Callable[..., Logger]


def lines(directory: Path) -> list[str]:
    """Return the lines of all audit segments as they stand in the files now."""
    paths = sorted(directory.glob("logs/audit/t-audit-*.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


def records(directory: Path, event: str | None = None) -> list[dict[str, Any]]:
    """Return the audit records in the files, those of ``event`` or all that processes made."""
    found = [json.loads(line) for line in lines(directory)]
    wanted = [event] if event is not None else []
    return [line for line in found if (line["event_name"] in wanted if wanted else line.get("seq") is not None)]


def problems(directory: Path, *more: str) -> list[dict[str, Any]]:
    """Return what `inference-logging verify` finds wrong."""
    done = run("verify", str(directory / "logs"), "--queue-directory", str(directory / "queues"), "--json", *more)
    report = json.loads(done.out)
    assert done.code == (1 if report["problems"] else 0)
    found: list[dict[str, Any]] = report["problems"]
    return found
