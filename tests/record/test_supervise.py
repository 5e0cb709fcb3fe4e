"""`inference-logging-listener supervise`: a container stays while what it runs ends, and says how often that was."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.kit.servers import free_port
from tests.kit.support import wait_until

pytestmark = pytest.mark.servers

Supervise = Callable[..., "Supervised"]
_PATIENCE_S = 60


class Supervised:
    """A supervisor, and what it said so far."""

    def __init__(self, binary: Path, command: tuple[str, ...], options: tuple[str, ...]) -> None:
        """Start it with ``options`` and its child with ``command``."""
        arguments = [str(binary), "supervise", *options, "--", *command]
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(line.rstrip("\n") for line in self.process.stderr)

    def _is_said(self, text: str, times: int) -> bool:
        return sum(text in line for line in self.said) >= times

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it or its child has said a text so many times."""
        wait_until(lambda: self._is_said(text, times), f"{times} times {text!r}: {self.said}")

    def ended(self) -> int:
        """Return its exit code."""
        return self.process.wait(_PATIENCE_S)

    def close(self) -> None:
        """End it and its child."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)
        self.process.kill()
        self._reader.join(_PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def supervise(listener_binary: Path) -> Iterator[Supervise]:
    """Start supervisors, which end with the test."""
    started: list[Supervised] = []

    def start(*command: str, options: tuple[str, ...] = ()) -> Supervised:
        started.append(Supervised(listener_binary, command, options))
        return started[-1]

    yield start
    for one in started:
        one.close()


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_a_child_that_ends_is_started_again_at_once_and_then_after_a_pause_that_grows(supervise: Supervise) -> None:
    supervised = supervise(*shell("echo begun >&2; exit 3"))
    supervised.until("begun", times=4)
    pauses = [line.rpartition("starts again in ")[2] for line in supervised.said if "starts again" in line]
    assert pauses[:3] == ["0 s", "1 s", "2 s"]
    assert "supervise: sh ended with 3" in "".join(supervised.said)


def test_what_a_scrape_reads_is_how_often_that_was(supervise: Supervise) -> None:
    supervised = supervise(*shell("echo begun >&2; exit 3"), options=("--metrics-port=0",))
    supervised.until("begun", times=3)
    served = httpx.get(f"http://127.0.0.1:{port(supervised)}/metrics")
    (sample,) = [line for line in served.text.splitlines() if not line.startswith("#")]
    name, _, count = sample.rpartition(" ")
    assert name == 'inference_logging_restarts_total{program="sh"}'
    assert int(count) >= 2


def port(supervised: Supervised) -> int:
    """Return where it serves."""
    supervised.until("serves /metrics")
    return int(supervised.said[0].rpartition(" ")[2])


def test_a_program_that_cannot_be_started_any_more_is_tried_again(supervise: Supervise, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nmv $0 $0.away\necho begun >&2\n", encoding="ascii")
    program.chmod(0o700)
    supervised = supervise(str(program))
    supervised.until("program: No such file or directory")
    Path(f"{program}.away").rename(program)
    supervised.until("begun", times=2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_the_child_ends_in_its_way_and_is_not_started_again(supervise: Supervise, number: int) -> None:
    supervised = supervise(*shell("trap 'echo drained >&2; exit 7' TERM; echo begun >&2; while :; do sleep 0.1; done"))
    supervised.until("begun")
    supervised.process.send_signal(number)
    assert supervised.ended() == 7
    supervised.until("drained")
    assert [line for line in supervised.said if "begun" in line] == ["begun"]


def test_a_child_that_a_signal_ended_gives_128_and_its_number(supervise: Supervise) -> None:
    supervised = supervise(*shell("echo begun >&2; exec sleep 600"))
    supervised.until("begun")
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 128 + signal.SIGTERM


def test_asked_to_end_between_two_children_it_ends_with_the_code_of_the_last(supervise: Supervise) -> None:
    supervised = supervise(*shell("exit 3"))
    supervised.until("starts again in 2 s")
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 3


def test_a_child_reads_on_until_its_delay_is_over_or_a_second_signal_comes(supervise: Supervise) -> None:
    supervised = supervise(*shell("echo begun >&2; exec sleep 600"), options=("--delay=600",))
    supervised.until("begun")
    supervised.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        supervised.process.wait(1)
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 128 + signal.SIGTERM


def test_a_child_that_hangs_at_the_end_is_killed(supervise: Supervise) -> None:
    supervised = supervise(*shell("trap '' TERM; echo begun >&2; exec sleep 600"), options=("--kill-after=1",))
    supervised.until("begun")
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 128 + signal.SIGKILL


_HANGS_ONCE = """
import http.server, pathlib, signal, sys, threading
left = pathlib.Path(sys.argv[1])
if not left.exists():
    left.write_text("left")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("hangs", file=sys.stderr, flush=True)
    signal.pause()


def finish(number, frame):
    left.write_text("done")
    raise SystemExit


signal.signal(signal.SIGTERM, finish)


class Live(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Live).serve_forever()
"""


def test_what_a_child_left_that_hung_at_its_end_is_done_by_another(supervise: Supervise, tmp_path: Path) -> None:
    left, port = tmp_path / "left", free_port()
    supervised = supervise(
        *(sys.executable, "-c", _HANGS_ONCE, str(left), str(port)),
        options=("--kill-after", "1", "--live-port", str(port)),
    )
    supervised.until("hangs")
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 0
    assert left.read_text() == "done"
    supervised.until("hung at its end; starts once more to finish")


def test_other_signals_are_the_childs(supervise: Supervise) -> None:
    supervised = supervise(*shell("trap 'echo asked >&2' USR1; echo begun >&2; while :; do sleep 0.1; done"))
    supervised.until("begun")
    supervised.process.send_signal(signal.SIGUSR1)
    supervised.until("asked")


class _Answer(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path in ("/live", "/producers") else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the output free of requests."""


@pytest.mark.parametrize("status", [200, 503])
def test_a_child_that_does_not_answer_is_replaced(
    supervise: Supervise, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(_Answer, "status", status)
    monkeypatch.setattr(_Answer, "log_message", lambda *_: asked.append("asked"))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        options = (f"--live-port={server.server_port}", "--live-every=0.05")
        supervised = supervise(*shell("echo begun >&2; exec sleep 600"), options=options)
        if status == 200:
            wait_until(lambda: len(asked) > 8, "questions")
            assert supervised.said == ["begun"]
        else:
            supervised.until("sh has not answered 6 times: killed")
            supervised.until("begun", times=2)
        server.shutdown()


@pytest.mark.parametrize("status", [200, 503])
def test_only_a_child_that_says_so_has_a_producer_that_died(
    supervise: Supervise, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Answer, "status", status)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        options = ("--metrics-port=0", f"--live-port={server.server_port}")
        supervised = supervise(*shell("exec sleep 600"), options=options)
        assert httpx.get(f"http://127.0.0.1:{port(supervised)}/producers").status_code == status
        server.shutdown()
    assert httpx.get(f"http://127.0.0.1:{port(supervised)}/producers").status_code == 200, "nobody answers"


def test_a_child_that_takes_too_much_memory_is_replaced_before_the_kernel_ends_all(supervise: Supervise) -> None:
    text = "import sys, time; print('begun', file=sys.stderr, flush=True); kept = b'x' * (64 << 20); time.sleep(600)"
    supervised = supervise(*python(text), options=(f"--memory-bytes={48 << 20}",))
    supervised.until("has too much memory: killed")
    supervised.until("ended with 137")
    supervised.until("begun", times=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'COMMAND'."),
        (("--delay=-1", "--", "true"), "-1 is not in the range 0<=x<=86400."),
        (("--", "/no/such/program"), "/no/such/program: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_refused(listener_binary: Path, arguments: tuple[str, ...], said: str) -> None:
    command = [str(listener_binary), "supervise", *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    assert made.returncode in (1, 2)
    assert said in made.stderr


def test_the_program_copies_itself_for_containers_of_other_images(listener_binary: Path, tmp_path: Path) -> None:
    assert subprocess.run([listener_binary, "install", tmp_path], check=False, timeout=_PATIENCE_S).returncode == 0
    (copy,) = tmp_path.iterdir()
    assert copy.name == "inference-logging-listener"
    assert b"supervise" in subprocess.run([copy, "--help"], capture_output=True, check=True).stdout
    missing = subprocess.run([listener_binary, "install", tmp_path / "no"], capture_output=True, check=False)
    assert missing.returncode == 1
    assert b"No such file" in missing.stderr
