"""The command `inference-logging view`: one line with the address, an end at once, and a sentence for what is wrong."""

from __future__ import annotations

import builtins
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import inference_logging.read
import inference_logging.read.view
from inference_logging.cli.main import INTERRUPTED, USAGE
from tests.kit.command_line import run
from tests.kit.segment_files import request, write_segment
from tests.kit.view_server import started


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_segment(tmp_path / "logs", [request(1), request(2)])
    return tmp_path / "logs"


@pytest.mark.servers
def test_one_line_has_the_address_and_ctrl_c_ends_it_at_once_with_its_streams(directory: Path, tmp_path: Path) -> None:
    with started(str(directory), cache=tmp_path) as view:
        view.wait_for_rows(2)
        status, found = view.get("api/rows")
        assert (status, len(found["rows"])) == (200, 2)
        with socket.create_connection(("127.0.0.1", view.port)) as stream:
            stream.sendall(f"GET /{view.token}/api/live HTTP/1.1\r\nHost: 127.0.0.1:{view.port}\r\n\r\n".encode())
            assert stream.recv(100).startswith(b"HTTP/1.1 200")
            view.process.send_signal(signal.SIGINT)
            out, err = view.process.communicate(timeout=120)
        assert view.process.returncode == INTERRUPTED
        assert (out, err) == ("", "")  # no log of requests, whose addresses have the token


@pytest.mark.servers
def test_the_given_port_and_cache_are_used_and_segments_stay_as_they_are(directory: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    arguments = [str(directory), "--port", str(port), "--cache-directory", str(tmp_path / "own")]
    with started(*arguments, cache=tmp_path / "other") as view:
        assert view.port == port
        view.wait_for_rows(2)
        view.process.send_signal(signal.SIGTERM)
        assert view.process.wait(30) == -signal.SIGTERM
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "other").exists()


@pytest.mark.servers
def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with started(str(tmp_path / "later"), cache=tmp_path) as view:
        assert view.get("api/rows")[1]["rows"] == []
        write_segment(tmp_path / "later", [request(1)])
        view.wait_for_rows(1)
        assert len(view.get("api/rows")[1]["rows"]) == 1
        view.process.send_signal(signal.SIGINT)
        _, err = view.process.communicate(timeout=120)
        assert err == f"inference-logging view: waits for {tmp_path}/later, which does not exist yet\n"


def refused(*arguments: str) -> str:
    done = run("view", "--no-browser", *arguments)
    assert (done.code, done.out) == (USAGE, ""), done
    assert done.err.count("\n") == 1, done.err
    return done.err


def test_a_file_is_no_directory(directory: Path) -> None:
    (segment,) = directory.iterdir()
    assert f"{segment}: not a directory" in refused(str(segment))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_no_host_but_loopback_is_taken(host: str, directory: Path) -> None:
    said = refused(str(directory), "--host", host)
    assert f"--host: host={host!r}: must be a loopback address" in said
    assert "ssh -L" in said


def test_a_wrong_port_and_link_are_named(directory: Path) -> None:
    assert "--port" in refused(str(directory), "--port", "70000")
    assert "'--trace-url': 'Jaeger': must be NAME=" in refused(str(directory), "--trace-url", "Jaeger")


def test_the_port_after_a_busy_one_is_taken_and_said(directory: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(str(directory), "--port", str(port), cache=tmp_path) as view:
            assert port < view.port < port + 20
            assert view.process.stderr is not None
            assert view.process.stderr.readline() == (
                f"inference-logging view: port {port} is taken; it listens on {view.port}\n"
            )


def test_a_port_that_may_not_be_had_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr("inference_logging.cli.view._PORTS", 1)
        port = other.getsockname()[1]
        done = run("view", "--no-browser", str(directory), "--port", str(port))
    assert done.code == 1
    assert done.err.startswith(f"inference-logging: port={port}: other programs use it and the next ports;")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "duckdb"])
def test_a_missing_extra_is_named(missing: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return of(name, *arguments, **more)

    # It is put back at the end.
    monkeypatch.setattr(inference_logging.read, "view", sys.modules["inference_logging.read.view"])
    for name in [name for name in sys.modules if name.startswith("inference_logging.read.view")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    done = run("view", "--no-browser", str(directory))
    assert done.code == 1
    assert done.err == f"inference-logging: view needs {missing}: pip install 'inferlog[view]'\n"


def test_a_browser_is_opened_where_there_is_one_and_its_failure_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from inference_logging.cli import view

    opened: list[Path] = []

    def opens(url: str) -> None:
        page = Path(url.removeprefix("file://"))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert "url=http://127.0.0.1:1/b/" in page.read_text()
        opened.append(page)

    monkeypatch.setattr("threading.Thread", _Now)
    monkeypatch.setattr(view, "_REDIRECTS_S", 0)
    monkeypatch.setattr("webbrowser.open", opens)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    view._open("http://127.0.0.1:1/a/")
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    view._open("http://127.0.0.1:1/a/")
    assert opened == [], "nobody is at a terminal"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    view._open("http://127.0.0.1:1/b/")
    (page,) = opened
    assert not page.exists()

    def fails(_url: str) -> None:
        raise OSError("no browser")

    monkeypatch.setattr("webbrowser.open", fails)
    view._open("http://127.0.0.1:1/c/")


class _Now:
    """A thread that runs at once."""

    def __init__(self, target: Any, args: Any, daemon: bool) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)
