"""Sinks that are damaged while they are written, and sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger
from tests.kit.signatures import Configure
from tests.kit.sinks import (
    Numbered,
    datagram,
    errors,
    freezable_file_system,
    numbers,
    numbers_in,
    parse_whole,
    remount,
    reported,
    sink,
    small_file_system,
    wait_for_state,
)
from tests.kit.support import read_records, wait_until

FLUSH_S = 60.0


def fill(path: Path) -> None:
    """Take all the room that a file system has."""
    with path.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


@pytest.mark.servers
def test_a_full_file_system_keeps_records_in_the_queue_until_there_is_room(
    configure: Configure, tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "small") as small:
        directory = small / "segments"
        with Logger(configure(directory=directory)) as logger:
            numbered = Numbered(logger)
            numbered.emit(10)
            assert logger.flush(FLUSH_S)
            fill(small / "filler")
            numbered.emit(200)
            published = wait_for_state(logger, "failing")
            assert errors(published) == {"full"}
            assert published["last_error"].startswith("No space left")
            assert logger.stats()["in_queue"] > 0
            (small / "filler").unlink()
            assert logger.flush(FLUSH_S)
            assert sink(logger)["state"] == "ok"
        assert numbers_in(directory) == list(range(210))
        assert reported(read_records(directory)) == ["sink.failed", "sink.recovered"]


@pytest.mark.servers
def test_a_read_only_file_system_keeps_records_in_the_queue_until_it_can_be_written(
    configure: Configure, tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "small") as small:
        directory = small / "segments"
        with Logger(configure(directory=directory)) as logger:
            # Before the first segment: a file system with a file open for writing cannot be made read-only.
            remount(small, "ro")
            numbered = Numbered(logger)
            numbered.emit(20)
            assert errors(wait_for_state(logger, "failing")) == {"read_only"}
            remount(small, "rw")
            assert logger.flush(FLUSH_S)
        assert numbers_in(directory) == list(range(20))
        assert reported(read_records(directory)) == ["sink.failed", "sink.recovered"]


@pytest.mark.servers
def test_a_directory_that_goes_and_cannot_come_back_is_waited_for(configure: Configure, tmp_path: Path) -> None:
    directory = tmp_path / "there" / "segments"
    with Logger(configure(directory=directory)) as logger:
        directory.rmdir()
        directory.parent.rmdir()
        directory.parent.write_bytes(b"in the way")
        numbered = Numbered(logger)
        numbered.emit(20)
        assert errors(wait_for_state(logger, "failing")) == {"gone"}
        directory.parent.unlink()
        assert logger.flush(FLUSH_S)
    assert numbers_in(directory) == list(range(20))


@pytest.mark.servers
def test_a_fallback_directory_takes_over_and_hands_back(configure: Configure, tmp_path: Path) -> None:
    directory, fallback = tmp_path / "there" / "segments", tmp_path / "fallback"
    config = configure(directory=directory, fallback=str(fallback), fallback_delay_s=0.2)
    with Logger(config) as logger:
        directory.rmdir()
        directory.parent.rmdir()
        directory.parent.write_bytes(b"in the way")
        numbered = Numbered(logger)
        numbered.emit(20)
        assert logger.flush(FLUSH_S)
        assert numbers_in(fallback) == list(range(20))
        assert logger.stats()["listener"]["fallback_active"] is True
        directory.parent.unlink()

        def is_back() -> bool:
            # The next batch that the primary is offered is the proof.
            numbered.emit()
            assert logger.flush(FLUSH_S)
            return logger.stats()["listener"]["fallback_active"] is False

        wait_until(is_back, "the primary to take over again")
    primary, second = logger.service.sinks()
    assert (primary["role"], second["role"]) == ("primary", "fallback")
    assert second["name"].endswith("/fallback")
    # Each record in one of them.
    assert sorted(numbers_in(directory) + numbers_in(fallback)) == list(range(numbered.count))
    assert reported(read_records(fallback))[:2] == ["sink.failed", "sink.fallback"]
    assert reported(read_records(directory)) == ["sink.recovered"]
    written = primary["records_written"] + second["records_written"]
    assert written == len(read_records(directory)) + len(read_records(fallback)) + 1, "and the end of the process"


@pytest.mark.servers
def test_a_file_system_that_hangs_is_left_to_the_fallback_and_handed_back_when_it_thaws(
    configure: Configure, tmp_path: Path
) -> None:
    fallback = tmp_path / "fallback"
    with freezable_file_system(tmp_path / "frozen") as freeze:
        directory = tmp_path / "frozen" / "segments"
        with Logger(configure(directory=directory, fallback=str(fallback), fallback_delay_s=0.3)) as logger:
            numbered = Numbered(logger)
            numbered.emit(10)
            assert logger.flush(FLUSH_S)
            freeze("-f")
            numbered.emit(10)
            assert logger.flush(FLUSH_S)
            assert wait_for_state(logger, "hung")["last_error"] is None
            numbered.emit(10)
            assert logger.flush(FLUSH_S)
            assert numbers_in(fallback) == list(range(10, 30))
            freeze("-u")
            wait_for_state(logger, "ok")
            numbered.emit(10)
            assert logger.flush(FLUSH_S)
        assert numbers_in(directory) == [*range(20), *range(30, 40)]
    takeover = [record for record in read_records(fallback) if record["event_name"] == "sink.fallback"]
    (span,) = takeover[0]["in_both"]
    assert (span["first"], span["last"]) == (10, 19), "said to be in both, as they are"
    assert reported(read_records(fallback)) == ["sink.fallback"]


@pytest.mark.servers
def test_a_logger_ends_within_its_deadline_while_its_file_system_hangs(configure: Configure, tmp_path: Path) -> None:
    with freezable_file_system(tmp_path / "frozen") as freeze:
        config = configure(directory=tmp_path / "frozen" / "segments", drain_deadline_s=0.2)
        logger = Logger(config)
        numbered = Numbered(logger)
        numbered.emit(10)
        assert logger.flush(FLUSH_S)
        freeze("-f")
        numbered.emit(10)
        wait_until(lambda: logger.stats()["listener"]["heartbeat_unix_nano"] > 0, "a listener")
        assert not logger.close(), "it came back, and says that something is left"
        freeze("-u")
        with Logger(config) as second:
            assert second.flush(FLUSH_S)
            wait_until(lambda: second.backlog_records() == 0, "the rest to be written")
        assert numbers_in(config.directory) == list(range(20))


def _run(script: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], **options)


@pytest.mark.servers
def test_a_reader_of_stdout_that_closes_is_replaced_by_stderr(tmp_path: Path) -> None:
    script = f"""
        import sys
        from inference_logging import Config, Logger
        config = Config(sink="stdout", queue_directory={str(tmp_path / "queues")!r}, fallback="stderr",
                        fallback_delay_s=0.1)
        with Logger(config) as logger:
            emit = logger.event("numbered", ["n"])
            assert emit(0) and logger.flush(60)
            sys.stdin.read()
            assert all(emit(n) for n in range(1, 100)) and logger.flush(60)
            assert logger.stats()["listener"]["fallback_active"]
            assert logger.service.sinks()[0]["errors"]["closed"]
        """
    with _run(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"n":0' in process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        text = process.stderr.read()
        assert process.wait() == 0, text
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(b"inference_logging: ")]
    records = parse_whole(b"".join(lines))
    assert [record["n"] for record in records if "n" in record] == list(range(1, 100))
    assert reported(records) == ["sink.failed", "sink.fallback"]
    operator = [line for line in text.splitlines() if line.startswith(b"inference_logging: ")]
    assert operator == [
        b"inference_logging: the sink stdout fails: Broken pipe (os error 32); records wait in the queue"
    ]


@pytest.mark.servers
def test_a_limit_of_file_sizes_neither_kills_the_process_nor_loses_a_record(tmp_path: Path) -> None:
    # Without Python's own precaution: the kernel's signal would end the process.
    script = f"""
        import resource, signal
        from inference_logging import Config, Logger
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        config = Config(directory={str(tmp_path / "segments")!r}, queue_directory={str(tmp_path / "queues")!r})
        with Logger(config) as logger:
            emit = logger.event("numbered", ["n"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
            assert all(emit(n) for n in range(500)) and logger.flush(60)
            assert logger.service.sinks()[0]["errors"]["too_large"]
        """
    with _run(script, stderr=subprocess.PIPE) as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert numbers_in(tmp_path / "segments") == list(range(500))


@pytest.mark.servers
def test_a_listener_that_ends_while_its_reader_is_stopped_leaves_the_rest_for_the_next(tmp_path: Path) -> None:
    # A reader that is stopped, not gone: the pipe fills, and a write would wait for ever.
    with (tmp_path / "read").open("wb") as out:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out)
    assert reader.stdin is not None
    os.kill(reader.pid, signal.SIGSTOP)
    config = f"""
        from inference_logging import Config, Logger
        config = Config(sink="stdout", queue_directory={str(tmp_path / "queues")!r}, drain_deadline_s=0.3)
        logger = Logger(config)
        """
    first = f"""{config}
        emit = logger.event("numbered", ["n"])
        assert all(emit(n) for n in range(2000))
        assert not logger.close()
        """
    with _run(first, stdout=reader.stdin, stderr=subprocess.PIPE) as process:
        _, said = process.communicate()
        assert process.returncode == 0, said
    second = f"""{config}
        from tests.kit.support import wait_until
        assert logger.flush({FLUSH_S})
        wait_until(lambda: logger.backlog_records() == 0, "the rest to be written")
        assert logger.close()
        """
    with _run(second, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        rest, said = process.communicate()
        assert process.returncode == 0, said
    os.kill(reader.pid, signal.SIGCONT)
    reader.stdin.close()
    assert reader.wait() == 0
    read = (tmp_path / "read").read_bytes()
    whole = parse_whole(read[: read.rfind(b"\n") + 1]) + parse_whole(rest)
    assert parse_whole(rest)
    assert sorted(record["n"] for record in whole if "n" in record) == list(range(2000))


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


@pytest.mark.servers
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
