"""UDP and Unix sockets as sinks, alone and beside others: readers that come late, go, stop, or cannot take a line."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config, Logger
from tests.sinks import Numbered, datagram, errors, numbers, numbers_in, parse_whole, reported, sink, wait_for_state
from tests.support import read_records, wait_until

Configure = Callable[..., Config]
FLUSH_S = 60.0
PATIENCE_S = 180.0


def udp_socket() -> socket.socket:
    receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    receiving.bind(("127.0.0.1", 0))
    receiving.settimeout(PATIENCE_S)
    return receiving


def test_each_line_is_one_datagram(configure: Configure) -> None:
    with udp_socket() as receiving:
        address = f"udp://127.0.0.1:{receiving.getsockname()[1]}"
        with Logger(configure(sink=address)) as logger:
            Numbered(logger).emit(50)
            assert logger.flush(FLUSH_S)
            assert sink(logger)["name"] == address
        received = [datagram(receiving.recv(1 << 16)) for _ in range(50)]
    assert numbers(received) == list(range(50))


def test_a_line_that_no_datagram_can_hold_is_dropped_counted_and_reported(configure: Configure) -> None:
    with udp_socket() as receiving:
        address = f"udp://127.0.0.1:{receiving.getsockname()[1]}"
        with Logger(configure(sink=address)) as logger:
            large = logger.event("large", ["text"])
            # Each quote takes two bytes in JSON.
            assert large('"' * 50_000)
            Numbered(logger).emit(1)
            assert logger.flush(FLUSH_S)
            received = [datagram(receiving.recv(1 << 16)) for _ in range(2)]
            published = sink(logger)
        assert numbers(received) == [0]
        assert (received[1]["event_name"], received[1]["dropped"]) == ("sink.dropped", 1)
    assert (published["records_dropped"], published["errors"]["too_large"]) == (1, 1)
    assert published["state"] == "ok", "nothing is waited for"


def test_a_closed_port_is_an_error_until_somebody_listens_there(configure: Configure) -> None:
    with udp_socket() as receiving:
        port = receiving.getsockname()[1]
    with Logger(configure(sink=f"udp://127.0.0.1:{port}")) as logger:
        numbered = Numbered(logger)
        # The first datagram is gone before the kernel knows; the answer to it is the error of the next.
        numbered.emit(1)
        assert logger.flush(FLUSH_S)
        numbered.emit(1)
        assert errors(wait_for_state(logger, "failing")) == {"closed"}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
            receiving.bind(("127.0.0.1", port))
            receiving.settimeout(PATIENCE_S)
            assert datagram(receiving.recv(1 << 16))["n"] == 1
            assert logger.flush(FLUSH_S)


def unix_listener(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    listening.settimeout(PATIENCE_S)
    return listening


def accept(listening: socket.socket) -> socket.socket:
    connection, _ = listening.accept()
    connection.settimeout(PATIENCE_S)
    return connection


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_a_unix_socket_is_connected_when_it_is_there_and_again_after_its_reader_has_gone(
    configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    with Logger(configure(sink=f"unix://{path}")) as logger:
        numbered = Numbered(logger)
        numbered.emit(5)
        assert errors(wait_for_state(logger, "failing")) == {"gone"}
        with unix_listener(path) as listening:
            with accept(listening) as first:
                assert logger.flush(FLUSH_S)
                text = b""
                while b"sink.recovered" not in text:
                    text += first.recv(1 << 16)
                assert numbers(parse_whole(text)) == [0, 1, 2, 3, 4]
            numbered.emit(5)
            with accept(listening) as second:
                assert logger.flush(FLUSH_S)
                logger.close()
                assert numbers(parse_whole(read_all(second))) == [5, 6, 7, 8, 9]


def test_a_reader_that_stops_reading_holds_records_back_and_gets_each_line_once(
    configure: Configure, tmp_path: Path
) -> None:
    with unix_listener(tmp_path / "s") as listening, Logger(configure(sink=f"unix://{tmp_path / 's'}")) as logger:
        numbered = Numbered(logger)
        numbered.emit(4000)
        with accept(listening) as connection:
            published = wait_for_state(logger, "failing")
            assert published["last_error"] is None, "no error of the system: the reader only does not read"
            assert logger.stats()["in_queue"] > 0
            text = b""
            while not (b'"n":3999}' in text and text.endswith(b"\n")):
                text += connection.recv(1 << 16)
            assert logger.flush(FLUSH_S)
            assert numbers(parse_whole(text)) == list(range(4000))


@pytest.mark.parametrize("kind", ["stops", "is not there"])
def test_an_additional_sink_whose_reader_fails_holds_back_nobody(
    kind: str, configure: Configure, tmp_path: Path
) -> None:
    other = f"file://{tmp_path / 'other'}"
    config = configure(
        additional_sinks=[f"unix://{tmp_path / 's'}", other], sink_buffer_bytes="64KiB", flush_bytes="4KiB"
    )
    with unix_listener(tmp_path / ("s" if kind == "stops" else "elsewhere")) as listening:
        with Logger(config) as logger:
            numbered = Numbered(logger)
            for _ in range(40):
                numbered.emit(100)
                assert logger.flush(FLUSH_S)
                # A slow disk fills the other one's buffer too.
                wait_until(
                    lambda: numbers_in(tmp_path / "other")[-1:] == [numbered.count - 1], "the other one to have all"
                )
            published = wait_for_state(logger, "failing", 1)
            dropped = sink(logger, 1)["records_dropped"]
            assert published["name"].startswith("unix:///")
            assert dropped > 0
            assert sink(logger, 2)["records_dropped"] == 0
            if kind == "stops":
                with accept(listening) as connection:
                    text = b""
                    while b"sink.dropped" not in text:
                        text += connection.recv(1 << 16)
                    records = parse_whole(text[: text.rfind(b"\n") + 1])
                    assert sink(logger, 1)["records_dropped"] == dropped
                    assert numbers(records) == list(range(4000 - dropped))
                    assert records[-1]["dropped"] == dropped
        assert numbers_in(tmp_path / "segments") == list(range(4000))
    assert reported(read_records(tmp_path / "segments")) == []


def test_a_unix_datagram_socket_gets_one_datagram_per_line(configure: Configure, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(tmp_path / "s"))
        receiving.settimeout(PATIENCE_S)
        with Logger(configure(sink=f"unix://{tmp_path / 's'}")) as logger:
            Numbered(logger).emit(100)
            received = [datagram(receiving.recv(1 << 16)) for _ in range(100)]
            assert logger.flush(FLUSH_S)
    assert numbers(received) == list(range(100))
