"""Servers that replace their workers while they serve: each answer on record once, each worker its own queue."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger
from tests.servers import HERE, Load, Server, serving, uvicorn
from tests.support import read_records, wait_until
from tests.test_servers import assert_each_answer_is_recorded

pytestmark = pytest.mark.servers

Configure = Callable[..., Config]
GUNICORN = ("gunicorn", "served_app:app", "--chdir", str(HERE), "--bind", "127.0.0.1:{port}", "--preload", "-w", "2")


def drain(config: Config) -> None:
    """Write what the server's last workers have left, as its next start does."""
    with Logger(config) as logger:

        def is_alone() -> bool:
            return logger.flush() and len(list(config.resolved_queue_directory.glob("*.queue"))) == 1

        wait_until(is_alone, "the queues of other processes to be written")


def assert_each_worker_has_a_queue_of_its_own(directory: Path, workers: int) -> None:
    """Check that at least so many took part, that no two share a queue, and that no sequence has a gap."""
    records: list[dict[str, Any]] = [record for record in read_records(directory) if "seq" in record]
    pids = {record["boot_id"]: record["pid"] for record in records}
    assert len(pids) == len({(record["boot_id"], record["pid"]) for record in records}) >= workers
    for boot_id in pids:
        numbers = sorted(record["seq"] for record in records if record["boot_id"] == boot_id)
        assert numbers == list(range(len(numbers)))


def serve_until_recycled(server: Server, path: str, workers: int) -> Load:
    """Send requests until so many processes have answered; return what was answered."""
    seen: set[int] = set()
    with Load(server, path, clients=4) as load:

        def enough() -> bool:
            seen.update(record["pid"] for record in read_records(server.config.directory, "request"))
            return len(seen) >= workers

        wait_until(enough, f"{workers} workers")
    return load


@pytest.mark.parametrize(
    "limit",
    [
        ("-k", "uvicorn.workers.UvicornWorker", "--max-requests", "40"),
        ("-k", "asgi", "--max-requests", "40", "--max-requests-jitter", "20"),
    ],
    ids=["uvicorn-worker", "asgi"],
)
def test_gunicorn_that_preloads_and_recycles_its_workers_records_each_answer(
    configure: Configure, limit: tuple[str, ...]
) -> None:
    config = configure(flush_interval_s=0.05)
    with serving(config, *GUNICORN, *limit, SERVED_APP_LOGS_AT_IMPORT="1") as server:
        load = serve_until_recycled(server, "/logged/1", 4)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 4)
    imported = [record for record in read_records(config.directory, "log") if record["message"] == "imported"]
    assert len(imported) == 1


def test_uvicorn_that_recycles_its_workers_records_each_answer(configure: Configure) -> None:
    config = configure(flush_interval_s=0.05)
    with uvicorn(config, "--workers", "2", "--limit-max-requests", "40") as server:
        load = serve_until_recycled(server, "/logged/1", 3)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 3)


def test_uvicorn_that_restarts_its_workers_at_sighup_records_each_answer(configure: Configure) -> None:
    config = configure(flush_interval_s=0.05)
    # A new worker has this long to start; after the 5 s of the default uvicorn gives up the restart.
    with uvicorn(config, "--workers", "2", "--timeout-worker-healthcheck", "60") as server:
        with Load(server, "/logged/1", clients=4) as load:
            load.wait_for(50)
            server.process.send_signal(signal.SIGHUP)

            def restarted() -> bool:
                return len({record["pid"] for record in read_records(config.directory, "request")}) >= 3

            wait_until(restarted, "a new worker")
            load.wait_for(50)
        server.stop()
    drain(config)
    assert_each_answer_is_recorded(config.directory, load)
    assert_each_worker_has_a_queue_of_its_own(config.directory, 3)
