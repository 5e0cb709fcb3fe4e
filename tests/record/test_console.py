"""The console: records as text on the listener's terminal, whatever is in them and whatever the terminal does."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import httpx
import pytest

from inference_logging import Config, ConfigError, Logger
from inference_logging.read.terminal import safe
from tests.kit.servers import HERE, free_port
from tests.kit.sidecars import LISTEN, environment
from tests.kit.signatures import Configure
from tests.kit.sinks import Numbered
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers

SGR: Final = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal of a width; nothing reads it until ``read`` is called."""

    def __init__(self, columns: int = 120) -> None:
        """Open it; ``file`` is what a program writes to."""
        self._screen, self.file = pty.openpty()
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def read(self) -> None:
        """Show from now on what is written."""
        self._reader.start()

    def close(self) -> None:
        """Close the screen, as if the window were closed."""
        if self._reader.ident is None and self._screen >= 0:
            os.close(self._screen)
            self._screen = -1

    def raw(self) -> str:
        """Return what was written so far, with its colours; line ends are those of the program."""
        return bytes(self._shown).decode().replace("\r\n", "\n")

    def text(self) -> str:
        """Return what was written so far, without colours."""
        return SGR.sub("", self.raw())

    def lines(self) -> list[str]:
        """Return the whole lines so far, without colours."""
        return self.text().split("\n")[:-1]

    def wait_for(self, text: str) -> str:
        """Wait until ``text`` is shown; return all that is shown then."""
        wait_until(lambda: text in self.text(), f"{text!r} on the terminal: {self.raw()[-2000:]}")
        return self.text()

    def _read(self) -> None:
        try:
            while block := os.read(self._screen, 1 << 16):
                self._shown += block
        except OSError:
            pass  # how a terminal says that nobody writes to it any more
        os.close(self._screen)


APP = HERE / "console_app.py"
FEW_COLOURS = re.compile(r"\x1b\[(?:0|1|2|1;31|31|32|33|36)m")
OF_COLOUR = ("NO_COLOR", "FORCE_COLOR", "TERM")
PATIENCE_S = 120.0


class Program:
    """The program of `console_app`, whose standard error is a terminal or a pipe."""

    def __init__(self, config: Config, stderr: int, **variables: str) -> None:
        inherited = {name: value for name, value in environment(config).items() if name not in OF_COLOUR}
        self.process = subprocess.Popen(
            [sys.executable, str(APP)],
            env={**inherited, "TERM": "xterm", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def step(self, step: str) -> Any:
        """Let it take a step; return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(step, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer, f"it ended: {self.process.poll()}"
        return json.loads(answer)

    def end(self) -> str:
        """Let it end; return what it wrote to a pipe."""
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        return said or ""


@contextmanager
def program(config: Config, stderr: int, **variables: str) -> Iterator[Program]:
    running = Program(config, stderr, **variables)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def test_nothing_is_shown_unless_it_is_asked_for(configure: Configure) -> None:
    assert Config().console == "off"
    with Terminal() as terminal, program(configure(), terminal.file) as running:
        terminal.read()
        assert running.step("emit 3") == 3
        running.end()
        assert terminal.text() == ""


def test_auto_shows_records_on_a_terminal_and_none_elsewhere(configure: Configure) -> None:
    config = configure(console="auto")
    with program(config, subprocess.PIPE) as running:
        assert running.step("emit 3") == 3
        assert running.end() == ""
    with Terminal() as terminal, program(config, terminal.file) as running:
        terminal.read()
        assert running.step("emit 3") == 3
        shown = terminal.wait_for("numbered n=2")
        running.end()
    assert [line for line in shown.splitlines() if "numbered n=" in line and "text=xxx" in line] == shown.splitlines()
    assert len(read_records(config.directory, "numbered")) == 6


@pytest.mark.parametrize(
    ("variables", "on_terminal", "elsewhere"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_colours_are_there_where_the_variables_of_terminals_say(
    variables: dict[str, str], on_terminal: bool, elsewhere: bool, configure: Configure
) -> None:
    config = configure(console="on")
    with Terminal() as terminal, program(config, terminal.file, **variables) as running:
        terminal.read()
        running.step("emit 1")
        terminal.wait_for("numbered n=0")
        running.end()
        assert bool(SGR.search(terminal.raw())) == on_terminal
    with program(config, subprocess.PIPE, **variables) as running:
        running.step("emit 1")
        said = running.end()
    assert ("numbered" in said, bool(SGR.search(said))) == (True, elsewhere)


def test_no_value_acts_on_the_terminal_or_begins_a_line(configure: Configure) -> None:
    with Terminal(80) as terminal, program(configure(console="auto"), terminal.file) as running:
        terminal.read()
        assert running.step("hostile")
        terminal.wait_for("second")
        running.end()
        raw = terminal.raw()
    shown = FEW_COLOURS.sub("", raw)
    for line in shown.splitlines():
        assert safe(line) == line
        assert len(line) <= 80
        assert re.match(r"\d\d:\d\d:\d\d\.\d{3} |    ", line), "a stranger's text begins a line"
    assert shown.count("forged") >= 4, "the hostile text is there"


def test_an_exception_stands_below_its_record(configure: Configure) -> None:
    with Terminal() as terminal, program(configure(console="auto"), terminal.file) as running:
        terminal.read()
        assert running.step("fail")
        terminal.wait_for("ValueError")
        running.end()
        record, *stack = [line for line in terminal.lines() if "process.ended" not in line]
    assert re.fullmatch(r'[\d:.]{12} ERROR app: failed user="Ada Lovelace".*', record)
    assert (stack[0], stack[-1]) == ("    Traceback (most recent call last):", "    ValueError: as asked for")


def test_a_terminal_that_takes_nothing_holds_nothing_back_and_what_it_missed_is_counted(configure: Configure) -> None:
    config = configure(console="auto", sink_buffer_bytes="64KiB")
    with Terminal() as terminal, program(config, terminal.file) as running:
        for _ in range(4):
            assert running.step("emit 1000") == 1000
            assert running.step("flush") is True, "the file waits for the terminal"
        assert len(read_records(config.directory, "numbered")) == 4000
        wait_until(lambda: running.step("console")[0] == "hung", "the console to be known as hung")
        assert running.step("health") == "ok", "a stopped terminal is no reason for concern"
        terminal.read()
        terminal.wait_for("left out")
        assert running.step("emit 1") == 1
        wait_until(lambda: running.step("console")[0] == "ok", "the console to go on")
        running.end()
        shown = terminal.text()
    missed = sum(int(count) for count in re.findall(r"… (\d+) lines left out: the terminal did not keep up", shown))
    assert (shown.count("numbered n="), missed > 0) == (4001 - missed, True)


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_a_terminal_that_is_closed_ends_the_console_alone(kind: str, configure: Configure) -> None:
    config = configure(console="on")
    terminal = Terminal()
    reading, writing = os.pipe()
    with terminal, program(config, terminal.file if kind == "terminal" else writing) as running:
        assert running.step("emit 1") == 1
        assert running.step("flush") is True
        os.close(writing)
        os.close(reading)
        terminal.close()

        def is_dropping() -> bool:
            assert running.step("emit 1") == 1
            return bool(running.step("console")[1])

        wait_until(is_dropping, "the console to end")
        assert running.step("emit 100") == 100
        assert running.step("flush") is True
        assert running.step("health") == "ok"
        running.end()
    assert len(read_records(config.directory, "numbered")) > 100


def test_the_process_is_shown_where_there_are_several(configure: Configure) -> None:
    config = configure(console="auto")
    with Terminal() as terminal, program(config, terminal.file) as leading:
        terminal.read()
        leading.step("emit 1")
        terminal.wait_for("numbered n=0")
        assert "[" not in terminal.text()
        with program(config, subprocess.DEVNULL) as other:
            other.step("emit 2")
            terminal.wait_for(f"[{other.process.pid}] numbered n=1")
            leading.step("emit 3")
            terminal.wait_for(f"[{leading.process.pid}] numbered n=2")
            other.end()
            terminal.wait_for("process.ended")
        leading.step("emit 5")
        assert "INFO  numbered n=4" in terminal.wait_for("numbered n=4"), "it is the only one again"
        leading.end()


def test_a_listener_of_its_own_shows_what_servers_produce(configure: Configure) -> None:
    config = configure(listener="external")
    with Terminal() as terminal, Logger(config) as logger:
        terminal.read()
        command = [*LISTEN, "--console", "--status-interval-s", "0"]
        with subprocess.Popen(command, env=environment(config), stderr=terminal.file) as listening:
            Numbered(logger).emit(2)
            terminal.wait_for("numbered n=1")
            listening.send_signal(signal.SIGKILL)


def test_each_request_is_a_line_and_ctrl_c_leaves_whole_lines(configure: Configure) -> None:
    config, port = configure(console="auto"), free_port()
    command = [sys.executable, "-m", "uvicorn", "served_app:app", "--app-dir", str(APP.parent), "--port", str(port)]
    with Terminal(100) as terminal:
        terminal.read()
        with subprocess.Popen(
            [*command, "--no-access-log"], env=environment(config), stdout=terminal.file, stderr=terminal.file
        ) as server:
            try:
                terminal.wait_for("Uvicorn running")
                for number in range(20):
                    assert httpx.get(f"http://127.0.0.1:{port}/logged/{number}", timeout=120).status_code == 200
                assert httpx.get(f"http://127.0.0.1:{port}/stream/4", timeout=120).status_code == 200
                server.send_signal(signal.SIGINT)
                server.wait(PATIENCE_S)
            finally:
                server.kill()
        wait_until(lambda: "Finished server process" in terminal.text(), "the server's last line")
        assert terminal.raw().endswith("\n")
        lines = terminal.lines()
    requests = [line for line in lines if re.match(r"[\d:.]{12} INFO  GET  200 ", line)]
    assert sum("/logged/" in line for line in requests) == 20
    assert sum(bool(re.search(r" /stream/4  first [\d.]+ .s  [0-9a-f]{8}$", line)) for line in requests) == 1
    assert sum(bool(re.search(r"WARN  served: logged number=\d+ ", line)) for line in lines) == 20
    assert all(re.match(r"[\d:.]{12} |    |INFO: ", line) for line in lines), lines


@pytest.mark.parametrize(
    ("values", "parameter"),
    [
        ({"console": "yes"}, "console"),
        ({"console": "on", "fallback": "stderr"}, "console"),
        (
            {"console": "auto", "fallback": "/b", "additional_sinks": [f"unix:///{n}" for n in range(6)]},
            "additional_sinks",
        ),
    ],
)
def test_a_console_that_has_no_place_is_refused_by_name(values: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ConfigError, match=f"\n  {parameter}"):
        Config(**values)
    Config(**{**values, "console": "off"})
