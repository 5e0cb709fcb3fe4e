"""Metrics of a server with several workers: any of them answers for all, and nothing goes back when one is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference_logging import Config
from tests.servers import HERE, Load, Server, serving
from tests.support import wait_until

pytestmark = pytest.mark.servers

WORKERS = 3
ROUTES = "http_server_request_duration_seconds"
LOGGED = "('http_route', '/logged/{number}')"


def totals(text: str) -> dict[str, float]:
    """Return every counter, and every bucket and count of histograms, by name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        if family.type in {"counter", "histogram"}
        for sample in family.samples
    }


def counter(counts: dict[str, float], name: str) -> float:
    """Return the sum of a counter over its labels."""
    return sum(value for key, value in counts.items() if key.startswith(f"{name}["))


def scrape_all(server: Server, without: int = 0) -> dict[int, dict[str, float]]:
    """Return what each worker shows, other than the one called ``without``; each is asked until it has answered."""
    seen: dict[int, dict[str, float]] = {}

    def everyone() -> bool:
        shown = server.get("/scraped", headers={"connection": "close"})
        if shown["pid"] != without:
            seen[shown["pid"]] = totals(shown["metrics"])
        return len(seen) >= WORKERS

    wait_until(everyone, f"an answer of each of {WORKERS} workers")
    return seen


def settled(server: Server) -> dict[str, float]:
    """Return the counts once everything accepted is written; the scrapes themselves are not recorded."""

    def all_written() -> dict[str, float] | None:
        counts = totals(httpx.get(f"{server.url}/metrics", timeout=120).text)
        written = counter(counts, "inference_logging_records_written_total")
        # The listener writes a few of its own: how a process has ended.
        is_written = written >= counter(counts, "inference_logging_records_accepted_total")
        return counts if is_written and counter(counts, "inference_logging_queue_records") == 0 else None

    found = wait_until(all_written, "everything to be written")
    assert isinstance(found, dict)
    return found


def ask_for_inference(server: Server, requests: int) -> None:
    """Ask for something that looks like inference, over connections of their own; 404 is an answer as well."""
    for _ in range(requests):
        httpx.post(
            f"{server.url}/v1/chat/completions", json={"model": "m"}, headers={"connection": "close"}, timeout=120
        )


def assert_nothing_went_back(before: dict[str, float], after: dict[str, float]) -> None:
    """Check that each counter of before is there and not smaller."""
    back = {key: (value, after.get(key)) for key, value in before.items() if not value <= after.get(key, -1.0)}
    assert not back


def test_any_worker_answers_for_all_and_no_counter_goes_back_when_one_is_killed(
    configure: Callable[..., Config],
) -> None:
    config = configure(metrics_path="/metrics")
    command = ("uvicorn", "served_app:app", "--app-dir", str(HERE), "--port", "{port}", "--workers", str(WORKERS))
    with serving(config, *command, INFERENCE_LOGGING_SKIP_PATHS="/scraped,/stats") as server:
        with Load(server, "/logged/1") as load:
            load.wait_for(300)
        ask_for_inference(server, 20)
        counts = settled(server)
        # One request record and one of the application's own each, and the 20.
        accepted = counter(counts, "inference_logging_records_accepted_total") - 20
        assert 2 * len(load.answered) <= accepted <= 2 * (len(load.answered) + len(load.failed))
        assert counter(counts, "gen_ai_server_request_duration_seconds_count") == 20
        by_route = sum(value for key, value in counts.items() if key.startswith(f"{ROUTES}_count") and LOGGED in key)
        assert len(load.answered) <= by_route <= len(load.answered) + len(load.failed)
        assert counter(counts, f"{ROUTES}_count") == counter(counts, "inference_logging_requests_total")
        assert counter(counts, "inference_logging_hot_path_seconds_total") > 0
        shown = scrape_all(server)
        for name in ("accepted", "written", "dropped"):
            key = f"inference_logging_records_{name}_total"
            assert {counter(one, key) for one in shown.values()} == {counter(counts, key)}
        assert {counter(one, "gen_ai_server_request_duration_seconds_count") for one in shown.values()} == {20}

        for victim in (leader_of(server), *shown):
            before = totals(httpx.get(f"{server.url}/metrics", timeout=120).text)
            kill(victim)
            ask_for_inference(server, 5)
            for after in scrape_all(server, without=victim).values():
                assert_nothing_went_back(before, after)
        last = settled(server)
        assert_nothing_went_back(counts, last)
        assert counter(last, "inference_logging_listener_starts_total") >= 2


def leader_of(server: Server) -> int:
    """Return the worker whose listener writes."""
    return int(server.get("/stats")["listener"]["leader_pid"])


def kill(pid: int) -> None:
    """Kill a worker and wait until it is gone; one that is gone already was the leader."""
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the worker to be gone")


def is_alive(pid: int) -> bool:
    """Return whether there is such a process that is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
