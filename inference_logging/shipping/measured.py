"""What a destination takes: bytes over the network, bytes that it keeps, and the shipper's seconds of processor.

The shipper itself ships segments, to a receiver on the loopback that counts and acknowledges what arrives. Kafka's is
the mock broker of librdkafka, in this process, so the seconds of that kind have a broker's share. To object storage
the file is made that is uploaded; its upload is not measured, and no kind has TLS. What an index takes only its server
can say.
"""

from __future__ import annotations

import contextlib
import gzip
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
from inference_logging.shipping.destinations import open_destination
from inference_logging.shipping.http import AnswerError
from inference_logging.shipping.line import Destination, Stored
from inference_logging.shipping.s3.place import JSON_LINES, PARQUET
from inference_logging.shipping.shipper import Shipper
from inference_logging.shipping.source import Source

KINDS: Final = ("kafka", "otlp", "forward", "clickhouse", "opensearch", "s3", "s3-parquet")
INDEXES: Final = ("clickhouse", "opensearch", "elasticsearch")
"""Kinds whose server says what it keeps."""
IN_BATCHES: Final = ("kafka", "otlp", "forward", *INDEXES)
"""Kinds that get records as they come; the others get whole segments."""
_NAME: Final = "size"
_PATIENCE_S: Final = 30.0
_BLOCK_BYTES: Final = 64 << 10
_STATISTICS_MS: Final = 20
_NO_FILES: Final = dict.fromkeys(("ship_headers_file", "ship_ca_file", "ship_shared_key_file", "ship_kafka_file"))
"""What a real destination wants is not for a receiver."""


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
    if kind == "kafka":
        return _to_kafka(directory, config)
    if kind in _RECEIVERS:
        server, handler, to = _RECEIVERS[kind]
        with _receiver(server, handler) as (port, counted):
            alone = {"ship_to": to.format(port=port), "ship_timeout_s": _PATIENCE_S, **_NO_FILES}
            destination = open_destination(config.model_copy(update=alone))
            cpu_s = _shipped(directory, destination, config, time.thread_time)
        return Shipped(counted.bytes, None, cpu_s)
    return _to_files(directory, PARQUET if kind == "s3-parquet" else JSON_LINES)


def stored(config: Config) -> Stored:
    """Return what the server that ``ship_to`` names has of records; its kind is one of ``INDEXES``.

    Raises ``InferenceLoggingError`` if it does not say, or has none; as ``open_destination``.
    """
    destination: Any = open_destination(config)
    import httpx  # which it has opened

    with contextlib.closing(destination):
        try:
            found: Stored = destination.stored()
        except (AnswerError, httpx.HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InferenceLoggingError(f"it does not say what it keeps: {type(error).__name__}: {error}") from None
    if not found.records:
        raise InferenceLoggingError("it has no records yet, so what one takes there is not known")
    return found


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


class _HttpHandler(BaseHTTPRequestHandler):
    """Answers each request with success; those with records count, which come compressed."""

    protocol_version = "HTTP/1.1"
    counted: _Counted

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        answer = b""
        if self.headers.get("Content-Encoding") == "gzip":
            self.counted.bytes += len(self.requestline) + 2 + len(self.headers.as_bytes()) + length
            answer = self.answer(content)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def answer(self, _content: bytes) -> bytes:
        """Return the success: an empty message of OTLP, and of ClickHouse."""
        return b""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base's signature
        pass


class _BulkHandler(_HttpHandler):
    """Has created each document, of which each has two lines."""

    def answer(self, content: bytes) -> bytes:
        documents = gzip.decompress(content).count(b"\n") // 2
        return orjson.dumps({"items": [{"create": {"status": 201}}] * documents})


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


_RECEIVERS: Final[dict[str, tuple[type[socketserver.TCPServer], type[socketserver.StreamRequestHandler], str]]] = {
    "otlp": (ThreadingHTTPServer, _HttpHandler, "otlp+http://127.0.0.1:{port}"),
    "forward": (_Server, _ForwardHandler, f"forward://127.0.0.1:{{port}}/{_NAME}"),
    "clickhouse": (ThreadingHTTPServer, _HttpHandler, f"clickhouse+http://127.0.0.1:{{port}}/{_NAME}"),
    **{
        kind: (ThreadingHTTPServer, _BulkHandler, f"{kind}+http://127.0.0.1:{{port}}/{_NAME}?template=none")
        for kind in ("opensearch", "elasticsearch")
    },
}
"""By kind: what receives and acknowledges, and its ``ship_to``."""
