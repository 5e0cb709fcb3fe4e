"""Metrics with a real Prometheus, with several workers, and with listeners that are killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from tests.kit.child import in_child
from tests.kit.servers import HERE, Load, Server, free_port, serving, uvicorn
from tests.kit.signatures import Configure
from tests.kit.support import (
    TRACE_ID,
    TRACEPARENT,
    Client,
    answer,
    body_messages,
    http_scope,
    read_records,
    replying,
    wait_until,
)

PROMETHEUS = shutil.which("prometheus")


@contextlib.contextmanager
def scraping(server: Server, directory: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes ``server`` each 200 ms; give its URL."""
    assert PROMETHEUS is not None
    configuration = directory / "prometheus.yml"
    configuration.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: served, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    options += [f"--web.listen-address={address}", "--enable-feature=exemplar-storage", "--log.level=error"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([PROMETHEUS, *options], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(60)


def ask_one(server: Server, **headers: str) -> None:
    httpx.post(f"{server.url}/v1/chat/completions", json={"model": "m"}, headers=headers, timeout=120)


def ask(url: str, path: str, query: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers to a query; nothing while it does not answer yet."""
    with contextlib.suppress(httpx.TransportError):
        times = {"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"} if path == "query_exemplars" else {}
        answer = httpx.get(f"{url}/api/v1/{path}", params={"query": query, **times}, timeout=120).json()
        if answer["status"] == "success":
            data = answer["data"]
            return list(data if isinstance(data, list) else data["result"])
    return []


@pytest.mark.servers
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (on Debian: apt-get install prometheus)")
def test_prometheus_takes_every_series_and_the_exemplars(configure: Configure, tmp_path: Path) -> None:
    config = configure(metrics_path="/metrics")
    with uvicorn(config) as server, scraping(server, tmp_path) as prometheus:
        ask_one(server, traceparent=TRACEPARENT.decode())
        wait_until(lambda: read_records(config.directory, "request"), "the record")
        name = "gen_ai_server_request_duration_seconds"
        (count,) = wait_until(lambda: ask(prometheus, "query", f"{name}_count"), "the histogram")
        assert count["value"][1] == "1"
        assert count["metric"]["error_type"] == "404"
        (found,) = wait_until(lambda: ask(prometheus, "query_exemplars", f"{name}_bucket"), "the exemplar")
        (record,) = read_records(config.directory, "request")
        assert found["exemplars"][0]["labels"] == {"trace_id": TRACE_ID, "span_id": record["span_id"]}
        assert [one["value"][1] for one in ask(prometheus, "query", "up")] == ["1"]
        assert sum(int(one["value"][1]) for one in ask(prometheus, "query", "inference_logging_state")) == 1


KILLS = 8
ANSWER = b'{"model":"m","usage":{"prompt_tokens":9,"completion_tokens":3}}'
SCOPE = ("/v1/chat/completions", "POST", [(b"content-type", b"application/json")])


def serve_until_killed(config: Config, report: int) -> NoReturn:
    """Listen, and answer requests for inference; write to ``report`` once it listens and has answered some."""
    logger = Logger(config)
    app = InferenceLoggingMiddleware(replying(*answer(ANSWER, content_type=b"application/json")), config)
    wait_until(lambda: logger.stats()["listener"]["leader_pid"] == os.getpid(), "this process to listen")

    async def serve(requests: int) -> None:
        for _ in range(requests):
            client = Client(body_messages(b'{"model":"m"}'))
            await app(http_scope(*SCOPE), client.receive, client.send)

    asyncio.run(serve(200))
    os.write(report, b"x")
    while True:
        asyncio.run(serve(10))


def counted(histograms: list[dict[str, Any]]) -> float:
    """Return how many requests the histograms of durations hold."""
    durations = [one for one in histograms if one["name"] == "gen_ai_server_request_duration_seconds"]
    return float(sum(one["buckets"][-1][1] for one in durations))


@pytest.mark.servers
def test_each_request_is_counted_once_whenever_its_listener_is_killed(configure: Configure) -> None:
    # Each writes all the time, so some die between the write, the count and the release of a batch.
    config = configure(flush_records=1, flush_interval_s=0.01)
    started, report = os.pipe()
    for _ in range(KILLS):
        pid = in_child(lambda: serve_until_killed(config, report))
        assert os.read(started, 1) == b"x"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with Logger(config) as logger:
        # The last one's requests in flight get their records a round after all that it had committed is written.
        wait_until(lambda: len(read_records(config.directory, "process.ended")) == KILLS, "the dead to be reported")
        assert logger.flush()
        records = read_records(config.directory, "request")
        assert len(records) >= KILLS * 200
        inferences = [record for record in records if "gen_ai.operation.name" in record]
        requests = logger.service.requests()
        assert counted(requests["histograms"]) == len(inferences)
        # One that was killed before it had an answer has no status, and one that had just begun no method.
        asked = [record for record in records if "http.request.method" in record]
        served = Counter(record.get("http.response.status_code", 0) for record in asked)
        assert Counter({one["status"]: one["buckets"][-1][1] for one in requests["routes"]}) == served
        assert {outcome: count for outcome, count in requests["outcomes"].items() if count} == Counter(
            record["outcome"] for record in records
        )
        for kind in ("input", "output"):
            tokens = sum(record.get(f"gen_ai.usage.{kind}_tokens", 0) for record in records)
            assert sum(one["tokens"] for one in requests["tokens"] if one["token_type"] == kind) == tokens > 0
        # Killed before a request's body was read, nobody knows that it is one for inference.
        assert {record["outcome"] for record in records if record not in inferences} <= {"process_died"}
        totals, stats = logger.service.totals(), logger.service.listener_stats()
    # What a listener says of itself (`segment.repaired`) goes through a queue too, where it has a number.
    numbered = [record for record in read_records(config.directory) if "seq" in record]
    assert {record["event_name"] for record in numbered} <= {"request", "segment.repaired"}
    assert totals["written"] == stats["taken_from_queues"] == len(numbered)
    # One that was killed in the middle of an emit leaves a record that nobody can read.
    assert totals["accepted"] == totals["written"] + sum(totals["dropped"]["torn"].values())
    assert totals["queues"] == KILLS + 1
    os.close(started)
    os.close(report)


WORKERS = 2
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
        ask_one(server, connection="close")


def assert_nothing_went_back(before: dict[str, float], after: dict[str, float]) -> None:
    """Check that each counter of before is there and not smaller."""
    back = {key: (value, after.get(key)) for key, value in before.items() if not value <= after.get(key, -1.0)}
    assert not back


@pytest.mark.servers
def test_any_worker_answers_for_all_and_no_counter_goes_back_when_one_is_killed(configure: Configure) -> None:
    config = configure(metrics_path="/metrics")
    command = ("uvicorn", "served_app:app", "--app-dir", str(HERE), "--port", "{port}", "--workers", str(WORKERS))
    with serving(config, *command, INFERENCE_LOGGING_SKIP_PATHS="/scraped,/stats") as server:
        with Load(server, "/logged/1") as load:
            load.wait_for(100)
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
