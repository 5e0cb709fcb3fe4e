"""What a destination takes: bytes over the network, bytes that it keeps, and the shipper's seconds of processor.

The shipper itself ships segments, to a receiver on the loopback that counts and acknowledges what arrives. Kafka's is
the mock broker of librdkafka, in this process, so the seconds of that kind have a broker's share. To object storage
the file is made that is uploaded; its upload is not measured, and no kind has TLS.
"""

from __future__ import annotations

import contextlib
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.config import Config
from inference_logging.errors import InferenceLoggingError, MissingExtraError
from inference_logging.segments import segments
from inference_logging.shipping.line import Destination
from inference_logging.shipping.s3.place import JSON_LINES, PARQUET
from inference_logging.shipping.shipper import Shipper
from inference_logging.shipping.source import Source

KINDS: Final = ("kafka", "otlp", "forward", "s3", "s3-parquet")
IN_BATCHES: Final = ("kafka", "otlp", "forward")
"""Kinds that get records as they come; the others get whole segments."""
_NAME: Final = "size"
_PATIENCE_S: Final = 30.0
_BLOCK_BYTES: Final = 64 << 10
_STATISTICS_MS: Final = 20


class Shipped(NamedTuple):
    """What all records together take; ``stored_bytes``: None where the destination decides it."""

    sent_bytes: int
    stored_bytes: int | None
    cpu_s: float


class _Counted:
    """Bytes that a receiver has read."""

    def __init__(self) -> None:
        self.bytes = 0


def ship(directory: Path, kind: str, config: Config) -> Shipped:
    """Ship the segments of ``directory``, which are this call's own, to a destination of ``kind``.

    Raises ``MissingExtraError``, ``InferenceLoggingError`` if a receiver does not take them.
    """
    match kind:
        case "kafka":
            return _to_kafka(directory, config)
        case "otlp":
            from inference_logging.shipping.otlp import open_otlp

            with _receiver(ThreadingHTTPServer, _OtlpHandler) as (port, counted):
                address = f"otlp+http://127.0.0.1:{port}"
                destination = open_otlp(address, timeout_s=_PATIENCE_S, headers={}, ca_file=None)
                cpu_s = _shipped(directory, destination, config, time.thread_time)
            return Shipped(counted.bytes, None, cpu_s)
        case "forward":
            from inference_logging.shipping.forward import ForwardDestination

            with _receiver(_Server, _ForwardHandler) as (port, counted):
                destination = ForwardDestination(("127.0.0.1", port), _NAME, timeout_s=_PATIENCE_S)
                cpu_s = _shipped(directory, destination, config, time.thread_time)
            return Shipped(counted.bytes, None, cpu_s)
    return _to_files(directory, PARQUET if kind == "s3-parquet" else JSON_LINES)


def _shipped(directory: Path, destination: Destination, config: Config, clock: Callable[[], float]) -> float:
    """Ship everything; return what that took on ``clock``."""
    failed: list[str] = []
    stop = threading.Event()

    def report(text: str) -> None:
        failed.append(text)
        stop.set()

    shipper = Shipper(Source(directory, _NAME, once=True), destination, config, report=report)
    with contextlib.closing(shipper):
        begun_s = clock()
        shipper.run(stop, once=True)
        took_s = clock() - begun_s
    if failed:
        raise InferenceLoggingError(f"a receiver on this machine does not take records: {failed[0]}")
    return took_s


def _to_kafka(directory: Path, config: Config) -> Shipped:
    from inference_logging.shipping.kafka import KafkaDestination

    seen: dict[str, Any] = {}

    def learn(statistics: str) -> None:
        seen.update(orjson.loads(statistics))

    mock: dict[str, Any] = {
        "test.mock.num.brokers": "1", "statistics.interval.ms": str(_STATISTICS_MS), "stats_cb": learn
    }  # fmt: skip
    destination = _Kept(KafkaDestination("127.0.0.1:9", _NAME, timeout_s=_PATIENCE_S, properties=mock))
    try:
        cpu_s = _shipped(directory, destination, config, time.process_time)
        end_s = time.monotonic() + _PATIENCE_S
        while seen.get("txmsgs", 0) < destination.lines and time.monotonic() < end_s:
            destination.send([])  # librdkafka calls back while it is asked for something
            time.sleep(_STATISTICS_MS / 1000)
    finally:
        destination.destination.close()
    return Shipped(int(seen["tx_bytes"]), None, cpu_s)


class _Kept:
    """A destination that the end of a shipper leaves open; ``lines``: what was handed to it."""

    def __init__(self, destination: Destination) -> None:
        self.destination, self.lines = destination, 0

    def send(self, lines: Any) -> Any:
        self.lines += len(lines)
        return self.destination.send(lines)

    def close(self) -> None:
        pass


def _to_files(directory: Path, form: str) -> Shipped:
    from inference_logging.shipping.s3.staging import Staging

    with tempfile.TemporaryDirectory(prefix="inference-logging-size-") as folder:
        staging = Staging(Path(folder) / "staged")
        begun_s = time.process_time()
        staged = [staging.stage(segment, form).object.bytes for segment in segments(directory)]
        return Shipped(sum(staged), sum(staged), time.process_time() - begun_s)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextlib.contextmanager
def _receiver(
    server: type[socketserver.TCPServer], handler: type[socketserver.StreamRequestHandler]
) -> Iterator[tuple[int, _Counted]]:
    """Serve on a free port of the loopback; yield it, and what arrives there."""
    counted = _Counted()
    counting = type(handler.__name__, (handler,), {"counted": counted})
    with server(("127.0.0.1", 0), counting) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver.server_address[1], counted
        finally:
            receiver.shutdown()
            thread.join()


class _OtlpHandler(BaseHTTPRequestHandler):
    """Answers each request with success: an empty message of the protocol."""

    protocol_version = "HTTP/1.1"
    counted: _Counted

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        self.counted.bytes += len(self.requestline) + 2 + len(self.headers.as_bytes()) + length
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base's signature
        pass


class _ForwardHandler(socketserver.StreamRequestHandler):
    """Acknowledges each chunk."""

    counted: _Counted

    def handle(self) -> None:
        try:
            import msgpack
        except ImportError:
            raise MissingExtraError("shipping by Fluent's forward protocol", "msgpack", "ship") from None
        unpacker = msgpack.Unpacker(raw=False, max_buffer_size=0)
        while block := self.request.recv(_BLOCK_BYTES):
            self.counted.bytes += len(block)
            unpacker.feed(block)
            for _tag, _entries, option in unpacker:
                self.request.sendall(msgpack.packb({"ack": option["chunk"]}))
