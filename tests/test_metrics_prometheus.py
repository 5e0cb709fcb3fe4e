"""A real Prometheus scrapes a real server: every series arrives, and each exemplar with its trace."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config
from tests.servers import Server, free_port, uvicorn
from tests.support import TRACE_ID, TRACEPARENT, read_records, wait_until

pytestmark = pytest.mark.servers

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


def ask(url: str, path: str, query: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers to a query; nothing while it does not answer yet."""
    with contextlib.suppress(httpx.TransportError):
        times = {"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"} if path == "query_exemplars" else {}
        answer = httpx.get(f"{url}/api/v1/{path}", params={"query": query, **times}, timeout=120).json()
        if answer["status"] == "success":
            data = answer["data"]
            found: list[dict[str, Any]] = data if isinstance(data, list) else data["result"]
            return found
    return []


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (on Debian: apt-get install prometheus)")
def test_prometheus_takes_every_series_and_the_exemplars(configure: Callable[..., Config], tmp_path: Path) -> None:
    config = configure(metrics_path="/metrics")
    with uvicorn(config) as server, scraping(server, tmp_path) as prometheus:
        headers = {"traceparent": TRACEPARENT.decode()}
        httpx.post(f"{server.url}/v1/chat/completions", json={"model": "m"}, headers=headers, timeout=120)
        wait_until(lambda: read_records(config.directory, "request"), "the record")
        name = "gen_ai_server_request_duration_seconds"
        (count,) = wait_until(lambda: ask(prometheus, "query", f"{name}_count"), "the histogram")
        assert count["value"][1] == "1"
        assert count["metric"]["error_type"] == "404"
        (found,) = wait_until(lambda: ask(prometheus, "query_exemplars", f"{name}_bucket"), "the exemplar")
        (record,) = read_records(config.directory, "request")
        assert found["exemplars"][0]["labels"] == {"trace_id": TRACE_ID, "span_id": record["span_id"]}
        assert [one["value"][1] for one in ask(prometheus, "query", "up")] == ["1"]
        states = {
            one["metric"]["state"]: one["value"][1] for one in ask(prometheus, "query", "inference_logging_state")
        }
        assert sum(map(int, states.values())) == 1
