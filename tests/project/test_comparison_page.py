"""The behaviours that docs/comparison.md says of other ways of logging, each tried with the real library."""

from __future__ import annotations

import gzip
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from inference_logging import Config
from tests.kit.shown import comparison_row
from tests.kit.support import read_records


@contextmanager
def langfuse_stand_in(out: Path) -> Iterator[str]:
    """Serve; give the address. Each span that arrives is a line of ``out``, once however often it is sent.

    Spans are answered after a POST to ``/go``.
    """
    seen: set[bytes] = set()
    lock, go = threading.Lock(), threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/go":
                go.set()
            elif self.path == "/api/public/otel/v1/traces":
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with lock, out.open("a", encoding="utf-8") as file:
                    new = spans(body) - seen
                    seen.update(new)
                    file.writelines("record\n" for _ in new)
                go.wait()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def spans(body: bytes) -> set[bytes]:
    """Return the ids of the spans of an OTLP request."""
    sent = ExportTraceServiceRequest.FromString(body)
    return {span.span_id for of in sent.resource_spans for scope in of.scope_spans for span in scope.spans}


CALLS = 200
FEW = 10
"""Fewer than loguru's queue has room for, whose calls would wait."""
MANY = 30_000
# Each defines call(n); what it writes goes into the file `out`, a line for each record.
STRUCTLOG = """
import structlog

structlog.configure(
    processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.WriteLoggerFactory(open("out", "w"))
)
log = structlog.get_logger()


def call(n):
    log.info("m", n=n)
"""
LOGURU = """
from loguru import logger

logger.remove()
logger.add("out", format="{message}")


def call(n):
    logger.info(n)
"""
# Where there is a queue, the sink holds it up: the first record is written, the next ones once `go` is set.
HELD = """
import asyncio, os, threading, time

go = threading.Event()


def write(text):
    with open("out", "a") as file:
        file.write(f"{text}\\n")
"""
LOGURU_QUEUE = f"""{HELD}
from loguru import logger


def sink(message):
    write(str(message).strip())
    go.wait()


logger.remove()
logger.add(sink, format="{{message}}", enqueue=True)


def call(n):
    logger.info(f"{{n}} " + "x" * 1000)


def end():
    logger.complete()
"""
FAPILOG = f"""{HELD}
from fapilog import get_logger


class Sink:
    name = "held"

    async def start(self):
        pass

    async def stop(self):
        pass

    async def write(self, entry):
        write("record")
        while not go.is_set():
            await asyncio.sleep(0.01)


log = get_logger(sinks=[Sink()])


def call(n):
    log.info(f"m {{n}}")


def end():
    asyncio.run(log.stop_and_drain())
"""
OPENTELEMETRY = f"""{HELD}
import logging

from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult


class Exporter(LogRecordExporter):
    def export(self, batch):
        for _ in batch:
            write("record")
        go.wait()
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis=0):
        return True

    def shutdown(self):
        pass


provider = LoggerProvider()
provider.add_log_record_processor(BatchLogRecordProcessor(Exporter()))
log = logging.getLogger("peer")
log.setLevel("INFO")
log.addHandler(LoggingHandler(logger_provider=provider))


def call(n):
    log.info("m %d", n)


def end():
    provider.shutdown()
"""
# A batch waits in the SDK; the server that stands in for Langfuse's holds its answers up.
LANGFUSE = """
import os, threading, urllib.request

from langfuse import Langfuse

ADDRESS = os.environ["STAND_IN"]


class go:
    @staticmethod
    def set():
        urllib.request.urlopen(f"{ADDRESS}/go", b"").close()


langfuse = Langfuse(public_key="public", secret_key="secret", base_url=ADDRESS, timeout=60)


def call(n):
    langfuse.start_observation(name=f"request {n}").end()


def end():
    langfuse.shutdown()
"""
KILLED = """
import os, signal

for n in range({calls}):
    call(n)
os.kill(os.getpid(), signal.SIGKILL)
"""
ENDED = """
for n in range({calls}):
    call(n)
go.set()
end()
os._exit(0)
"""
FILLED = """
calls = 0


def fill():
    global calls
    for n in range({calls}):
        call(n)
        calls += 1


caller = threading.Thread(target=fill, daemon=True)
caller.start()
before = -1
while caller.is_alive() and calls > before:
    before = calls
    caller.join(3)
print(calls, flush=True)
go.set()
if caller.is_alive():
    os._exit(0)
end()
os._exit(0)
"""


def ran(library: str, code: str, place: Path, ended: int) -> subprocess.CompletedProcess[str]:
    """Run a program, which must end so, and return what it printed."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install {library}")
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == ended, done.stderr
    return done


def arrived(place: Path) -> int:
    out = place / "out"
    return len(out.read_text(encoding="utf-8").splitlines()) if out.exists() else 0


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve where a program finds its Langfuse."""
    with langfuse_stand_in(tmp_path / "out") as address:
        monkeypatch.setenv("STAND_IN", address)
        yield


@pytest.mark.parametrize(("library", "code"), [("structlog", STRUCTLOG), ("loguru", LOGURU)])
def test_what_is_written_in_the_call_stays_after_a_kill(library: str, code: str, tmp_path: Path) -> None:
    assert "what was written stays" in comparison_row(library)[1]
    ran(library, code + KILLED.format(calls=CALLS), tmp_path, -signal.SIGKILL)
    assert arrived(tmp_path) == CALLS


@pytest.mark.servers
@pytest.mark.parametrize(
    ("library", "code", "way", "words"),
    [
        ("loguru", LOGURU_QUEUE, "loguru", "the queue is lost"),
        ("fapilog", FAPILOG, "fapilog", "its queue is lost"),
        ("opentelemetry", OPENTELEMETRY, "OpenTelemetry SDK", "its batch is lost"),
        ("langfuse", LANGFUSE, "Langfuse", "its batch is lost"),
    ],
)
@pytest.mark.usefixtures("stand_in")
def test_what_waits_in_a_queue_of_the_process_is_lost_by_a_kill(
    library: str, code: str, way: str, words: str, tmp_path: Path
) -> None:
    assert words in comparison_row(way)[1]
    ran(library, code + KILLED.format(calls=FEW), tmp_path, -signal.SIGKILL)
    killed = arrived(tmp_path)
    ran(library, code + ENDED.format(calls=FEW), tmp_path, 0)
    assert arrived(tmp_path) - killed == FEW
    assert killed < FEW


@pytest.mark.servers
@pytest.mark.parametrize(
    ("library", "code", "way", "calls"),
    [
        ("fapilog", FAPILOG, "fapilog", MANY),
        ("opentelemetry", OPENTELEMETRY, "OpenTelemetry SDK", MANY),
        ("langfuse", LANGFUSE, "Langfuse", 5000),
    ],
)
@pytest.mark.usefixtures("stand_in")
def test_a_full_queue_drops(library: str, code: str, way: str, calls: int, tmp_path: Path) -> None:
    says = comparison_row(way)[2]
    done = ran(library, code + FILLED.format(calls=calls), tmp_path, 0)
    assert int(done.stdout) == calls
    assert arrived(tmp_path) < calls
    assert says == ("drops, with a warning" if "Queue full, dropping" in done.stderr else "drops")


@pytest.mark.servers
def test_a_full_queue_of_loguru_lets_the_call_wait(tmp_path: Path) -> None:
    assert comparison_row("loguru")[2] == "the call waits"
    assert int(ran("loguru", LOGURU_QUEUE + FILLED.format(calls=MANY), tmp_path, 0).stdout) < MANY


OURS = """
from inference_logging import Logger

emit = Logger().event("peer.event", ["n"])


def call(n):
    emit(n)
"""


@pytest.mark.servers
@pytest.mark.parametrize(("calls", "queue"), [(CALLS, "1MiB"), (MANY, "256KiB")])
def test_ours_writes_after_a_kill_what_it_accepted_and_says_what_it_did_not(
    calls: int, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, full, *_ = comparison_row("this package")[1:]
    assert kept == "what was accepted is written by the next listener"
    assert full == "drops by level, counts, reports it in the log"
    monkeypatch.setenv("INFERENCE_LOGGING_LISTENER", "external")
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_BYTES", queue)
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(tmp_path / "queues"))
    ran("inference_logging", OURS + KILLED.format(calls=calls), tmp_path, -signal.SIGKILL)
    command = [sys.executable, "-m", "inference_logging.cli.main", "recover", "--directory", str(tmp_path / "logs")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=os.environ)
    logs = Config(directory=tmp_path / "logs").directory
    written = len(read_records(logs, "peer.event"))
    dropped = sum(line["dropped"] for line in read_records(logs, "log.dropped"))
    assert written + dropped == calls
    assert (dropped > 0) == (calls == MANY)
