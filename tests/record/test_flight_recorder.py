"""What a process was doing when it ended: each request that had begun has exactly one terminal record (P5)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest

from inference_logging import Config, Logger
from tests.kit.child import CHUNK, hang, in_child, join, killed_while, serve_hanging
from tests.kit.servers import HERE, Server, serving, uvicorn
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, http_scope, read_records, replying, wait_until

pytestmark = pytest.mark.servers


class Streams:
    """Clients that read endless streams of `served_app` until their server is gone, and count what has come."""

    def __init__(self, server: Server, clients: int, pause_s: float) -> None:
        self.bytes_received: Counter[str] = Counter()
        self._url = f"{server.url}/stream/1000000?pause_s={pause_s}"
        self._threads = [threading.Thread(target=self._read, args=(f"stream-{number}",)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until each has seen the end of its server."""
        for thread in self._threads:
            thread.join()

    def _read(self, name: str) -> None:
        try:
            with httpx.stream("GET", self._url, headers={"x-request-id": name}, timeout=180) as response:
                for part in response.iter_raw():
                    self.bytes_received[name] += len(part)
        except httpx.TransportError:
            pass


def recover(config: Config) -> list[dict[str, Any]]:
    """Let a listener of this process write what dead ones have left; return all terminal records."""
    with Logger(config) as logger:
        wait_until(lambda: len(logger.service.queues()) == 1, "the dead processes' queues to be gone")
    return read_records(config.directory, "request")


def streamed_bytes(chunks: int) -> int:
    """Return how many bytes the first chunks of `served_app`'s stream have."""
    return sum(len(b"data: %d\n\n" % number) for number in range(chunks))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_killed_in_the_middle_of_streams_reports_of_each_what_it_had_sent(
    configure: Configure, workers: int
) -> None:
    config = configure()
    with uvicorn(config, "--workers", str(workers)) as server:
        for number in range(20):
            assert server.get("/", headers={"x-request-id": f"plain-{number}"})
        streams = Streams(server, clients=12, pause_s=0.001)
        wait_until(
            lambda: len(streams.bytes_received) == 12 and min(streams.bytes_received.values()) > 500,
            "all streams to flow",
        )
        os.killpg(server.process.pid, signal.SIGKILL)
        streams.join()
    records = {record["client_request_id"]: record for record in recover(config) if "client_request_id" in record}
    assert Counter(record.get("client_request_id") for record in read_records(config.directory, "request")) == Counter(
        [*(f"plain-{number}" for number in range(20)), *(f"stream-{number}" for number in range(12))]
    )
    assert {records[f"plain-{number}"]["outcome"] for number in range(20)} == {"ok"}
    for name, received in streams.bytes_received.items():
        record = records[name]
        assert (record["outcome"], record["error.type"], record["severity_text"]) == (
            "process_died",
            "process_died",
            "ERROR",
        )
        assert (record["http.response.status_code"], record["http.route"]) == (200, "/stream/{chunks}")
        assert (record["http.request.method"], record["url.path"]) == ("GET", "/stream/1000000")
        assert record["http.response.body.size"] == streamed_bytes(record["chunks"]), "of a whole number of chunks"
        assert record["http.response.body.size"] >= received, "what the client has, the server had sent"
        assert 0 < record["gen_ai.response.time_to_first_chunk"] <= record["duration_s"]
        assert (record["sampled_by"], record["adjusted_count"]) == ("error", 1.0)


def test_a_request_killed_before_its_answer_reports_the_model_that_it_asked_for(configure: Configure) -> None:
    config = configure()
    short = b'{"model": "small", "stream": true, "max_tokens": 7}'
    # As clients write it: the messages first, so that the model stands in the last bytes.
    long = b'{"messages": [{"role": "user", "content": "' + b"x" * 5000 + b'"}], "model": "large"}'
    requests = [("/v1/chat/completions", short, 0), ("/v1/chat/completions", long, 3)]
    killed_while(config, lambda reported: serve_hanging(config, reported, *requests))
    records = sorted(recover(config), key=lambda record: int(record["http.request.body.size"]))
    assert [record["gen_ai.request.model"] for record in records] == ["small", "large"]
    assert [record["gen_ai.operation.name"] for record in records] == ["chat", "chat"]
    assert records[0]["gen_ai.request.max_tokens"] == 7
    assert [record.get("chunks") for record in records] == [None, 3]
    assert [record.get("http.response.status_code") for record in records] == [None, 200]
    assert records[1]["http.response.body.size"] == 3 * len(CHUNK)
    assert all(record["outcome"] == "process_died" for record in records)
    with Logger(config) as logger:
        histograms = logger.service.requests()["histograms"]
    counted = [(one["name"], one["operation"], one["error_type"], one["buckets"][-1][1]) for one in histograms]
    assert counted == [("gen_ai_server_request_duration_seconds", "chat", "process_died", 2)]


def test_what_finds_no_slot_is_counted_and_still_recorded_at_its_end(recording: Recording) -> None:
    recorded = recording(in_flight_slots=2)
    served = recorded.wrap(replying(*answer(b"ok")))
    both = asyncio.Event()

    async def slow(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await both.wait()
        await replying(*answer(b"ok"))(scope, receive, send)

    async def run() -> None:
        clients = [Client() for _ in range(5)]
        calls = [recorded.wrap(slow)(http_scope(), client.receive, client.send) for client in clients]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        (queue,) = recorded.logger.service.queues()
        assert queue["in_flight"] == 2
        both.set()
        await asyncio.gather(*tasks)
        client = Client()
        await served(http_scope(), client.receive, client.send)

    asyncio.run(run())
    assert [record["outcome"] for record in recorded.records("request")] == ["ok"] * 6
    assert recorded.logger.service.totals()["in_flight_missed"] == 3
    (queue,) = recorded.logger.service.queues()
    assert queue["in_flight"] == 0


def test_without_slots_nothing_is_missed_and_nothing_is_reported(configure: Configure) -> None:
    config = configure(in_flight_slots=0)
    killed_while(config, lambda reported: serve_hanging(config, reported, ("/", b"{}", 1)))
    assert recover(config) == []
    with Logger(config) as logger:
        assert logger.service.totals()["in_flight_missed"] == 0


def test_a_died_requests_record_is_kept_whatever_sampling_says_and_counts_one(configure: Configure) -> None:
    config = configure(sample_ratio=0.0)
    killed_while(config, lambda reported: serve_hanging(config, reported, ("/", b"{}", 1)))
    (record,) = recover(config)
    assert (record["outcome"], record["sampled_by"], record["adjusted_count"]) == ("process_died", "error", 1.0)


def test_only_processes_that_died_are_counted_as_deaths(configure: Configure) -> None:
    config = configure()

    def closes_in_order() -> None:
        with Logger(config):
            pass

    join(in_child(closes_in_order))
    killed_while(config, lambda reported: serve_hanging(config, reported, ("/", b"{}", 1)))
    killed_while(config, lambda reported: (reported(), threading.Event().wait()))
    recover(config)
    with Logger(config) as logger:
        assert logger.service.totals()["producer_deaths"] == 2


def test_streams_that_are_open_when_logging_ends_are_cut_off_by_the_shutdown(recorded: Recorded) -> None:
    async def run() -> None:
        reached = asyncio.Event()
        client = Client()
        app = recorded.wrap(hang([CHUNK, CHUNK], reached.set))
        task = asyncio.ensure_future(app(http_scope("/stream"), client.receive, client.send))
        await reached.wait()
        recorded.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    (record,) = read_records(recorded.config.directory, "request")
    assert (record["outcome"], record["chunks"], record["severity_text"]) == ("server_shutdown", 2, "WARN")
    assert recorded.logger.stats()["dropped"] == {}, "the request ended once, and nothing is missing"
    assert not list(recorded.config.resolved_queue_directory.glob("*.queue"))


def test_a_forked_worker_has_slots_from_its_first_request_on(recorded: Recorded) -> None:
    served = recorded.config
    reported, report = os.pipe()
    pid = in_child(lambda: serve_hanging(served, lambda: os.write(report, b"x"), ("/first", b"{}", 1)))
    assert os.read(reported, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: read_records(served.directory, "request"), "the dead child's request")
    record = recorded.request()
    assert (record["outcome"], record["url.path"], record["pid"]) == ("process_died", "/first", pid)
    os.close(reported)
    os.close(report)


def test_listeners_killed_while_they_recover_double_nothing(configure: Configure) -> None:
    requests = 600
    config = configure(queue_bytes="64KiB", max_record_bytes="16KiB", flush_interval_s=0.01)
    many = [(f"/{number}", b"{}", 1) for number in range(requests)]
    killed_while(config, lambda reported: serve_hanging(config, reported, *many))

    def listen(report: int) -> None:
        logger = Logger(config)
        os.write(report, b"x")
        logger.flush(60)
        threading.Event().wait()

    for kill in range(12):
        started, report = os.pipe()
        pid = in_child(lambda report=report: listen(report))  # type: ignore[misc]
        assert os.read(started, 1) == b"x"
        # Not a wait for anything: the later kills fall into the middle of the work.
        threading.Event().wait(0.002 * kill)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(started)
        os.close(report)
    paths = Counter(record["url.path"] for record in recover(config))
    assert paths == Counter(f"/{number}" for number in range(requests))


def test_a_server_that_is_stopped_while_it_streams_ends_each_request_once(configure: Configure) -> None:
    config = configure()
    with serving(
        config, "uvicorn", "served_app:app", "--app-dir", str(HERE), "--port", "{port}",
        "--no-access-log", "--timeout-graceful-shutdown", "1",
    ) as server:  # fmt: skip
        streams = Streams(server, clients=4, pause_s=0.01)
        wait_until(lambda: len(streams.bytes_received) == 4, "all streams to flow")
        server.stop()
        streams.join()
    ended = Counter((record["client_request_id"], record["outcome"]) for record in recover(config))
    assert ended == Counter((f"stream-{number}", "server_shutdown") for number in range(4))
