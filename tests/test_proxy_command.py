"""The command line of the proxy, in the program and in the package."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.command_line import run
from tests.sidecars import environment

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "127.0.0.1:1"), "Missing option '--listen'"),
        (("--listen", "127.0.0.1:0"), "Missing option '--to'"),
        (("--listen", "8080", "--to", "a:1"), "Invalid value for '--listen': '8080'"),
        (("--listen", "a:1", "--to", "https://a:1"), "Invalid value for '--to': 'https://a:1' needs TLS"),
        (("--listen", "a:1", "--to", "a:1", "--threads", "0"), "0 is not in the range 1<=x<=256"),
    ],
)
def test_a_wrong_command_line_is_refused(listener_binary: Path, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [listener_binary, "proxy", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_port_in_use_is_named(listener_binary: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(listener_binary), "proxy", "--listen", address, "--to", "a:1", "--directory", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"--listen {address}" in done.stderr


def test_the_command_of_the_package_becomes_the_program(
    listener_binary: Path, configure: Callable[..., Config]
) -> None:
    code = f"""
from pathlib import Path
from inference_logging.cli import main, native
native._program = lambda: Path({str(listener_binary)!r})
raise SystemExit(main.run(["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--threads", "2"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment(configure()), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        assert (process.wait(60), "passes requests to 127.0.0.1:1" in first) == (0, True), first


def test_without_the_program_the_command_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_logging.cli.native._program", lambda: None)
    done = run("proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1")
    assert (done.code, "pip install inferlog-listener" in done.err) == (1, True), done
