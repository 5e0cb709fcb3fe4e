"""A raw key never leaves the queue: no sink, no command and no killed process shows it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.command_line import run
from tests.identity import HEADERS, SECRET, Configure, everything, records_of, served
from tests.shipping.endpoint import Collector, collector
from tests.support import read_lines

__all__ = ["collector"]  # a fixture

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from inference_logging import Config, InferenceLoggingMiddleware, Logger, current_request

async def app(scope, receive, send):
    await receive()
    current_request().set(**{"enduser.id": "u-1"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    headers = [(b"x-tenant", b"acme"), (b"authorization", b"Bearer " + sys.argv[1].encode())]
    scope = {"type": "http", "method": "POST", "path": "/p", "headers": headers, "client": ("192.0.2.7", 1)}
    async def receive():
        return {"type": "http.request", "body": b"{}"}
    async def send(message):
        pass
    await InferenceLoggingMiddleware(app)(scope, receive, send)

asyncio.run(main())
"""


def test_the_record_of_a_killed_process_says_whose_request_it_was_and_has_no_raw_key(
    keyed: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = keyed(record_headers=HEADERS, listener="external")
    for name in ("directory", "queue_directory", "capture_hash_key_file", "listener"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    monkeypatch.setenv("INFERENCE_LOGGING_RECORD_HEADERS", ",".join(HEADERS))
    done = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", CHILD, SECRET])
    assert done == -signal.SIGKILL
    run("recover", str(config.queue_directory))
    (record,) = [line for line in read_lines(config.directory) if line["event_name"] == "request"]
    assert (record["outcome"], record["tenant.id"], record["enduser.id"]) == ("process_died", "acme", "u-1")
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert SECRET.encode() not in everything(config.directory)
    assert SECRET not in "".join(capfd.readouterr())


def test_the_raw_key_is_in_no_sink_and_not_in_the_queue_behind_its_request(keyed: Configure, tmp_path: Path) -> None:
    config = keyed(record_headers=HEADERS, additional_sinks=[f"file://{tmp_path / 'second'}"], resource_on_lines="on")
    record = served(config, {"authorization": f"Bearer {SECRET}", "x-tenant": "acme"})
    assert record["tenant.id"] == "acme"
    assert b"api_key.hash" in everything(tmp_path / "second")
    assert SECRET.encode() not in everything(tmp_path)
    for command in (["tail", str(config.directory)], ["tail", str(config.directory), "--json"]):
        out = run(*command).out
        assert "acme" in out or "--json" not in command
        assert SECRET not in out


def test_a_listener_without_the_key_does_not_take_the_records_and_shows_nothing_of_them(keyed: Configure) -> None:
    config = keyed(record_headers=HEADERS, listener="external")
    assert records_of(config, [{"authorization": SECRET, "x-tenant": "acme"}]) == []
    # The directory's own configuration says which key it was, not where it is.
    assert config.queue_directory is not None
    own = str(config.queue_directory / "configuration.yaml")
    done = run("recover", "--config", own, str(config.queue_directory))
    assert done.code == 2
    assert SECRET not in done.out + done.err


def test_the_raw_key_is_not_in_a_fallback_nor_in_what_is_shipped(
    keyed: Configure, collector: Collector, tmp_path: Path
) -> None:
    fallback = tmp_path / "fallback"
    config = keyed(
        record_headers=HEADERS, sink=f"unix://{tmp_path / 'nobody'}", fallback=str(fallback), fallback_delay_s=0.0
    )
    records_of(config, [{"authorization": f"Bearer {SECRET}", "x-tenant": "acme"}])
    assert b"api_key.hash" in everything(fallback)
    done = run("ship", "--directory", str(fallback), "--to", collector.url, "--once")
    assert done.code == 0, done
    shipped = b"".join(content for _, _, content in collector.requests)
    assert b"acme" in shipped
    assert SECRET.encode() not in shipped
    assert SECRET.encode() not in everything(tmp_path)
