"""Ways to damage where a server's log goes, while it runs, and to repair it again. Each needs no help of the server.

A damage is a context: entering it prepares the place, leaving it removes what it mounted. ``settings`` names the place
for the server; ``records`` counts the request records that arrived, once the server has ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

REQUEST = b'"event_name":"request"'
STREAM_WRITE_BYTES = 4096
"""What one write to a stream hands over at most."""
SLOW_WRITE_S = 0.002
_BLOCK = b"\0" * (1 << 20)


class CannotDamageError(RuntimeError):
    """This machine does not allow what the damage needs, such as a mount."""


class Healthy:
    """No damage: what logging costs while all is well."""

    name = "healthy"

    def __init__(self, scratch: Path) -> None:
        """Use ``scratch``, an empty directory of its own."""
        self.scratch = scratch
        self.directory = scratch / "place" / "log"
        self.stdout: int | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Parameters of the server besides the directory."""
        return {"rotate_bytes": "1MiB"}

    def strike(self) -> None:
        """Begin the damage."""

    def repair(self) -> None:
        """End it."""

    def records(self) -> int:
        """Return how many request records arrived; the server has ended."""
        segments = [path for path in self.scratch.glob("**/*.jsonl") if not path.is_symlink()]
        return sum(path.read_bytes().count(REQUEST) for path in segments)

    def __enter__(self) -> Healthy:
        """Prepare the place."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove what was prepared outside of ``scratch``."""


class FullDisk(Healthy):
    """A small tmpfs without room."""

    name = "full disk"

    def __enter__(self) -> FullDisk:
        """Mount it."""
        place = self.scratch / "place"
        place.mkdir()
        _mount("-t", "tmpfs", "-o", "size=256m", "none", str(place))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.scratch / "place")], check=True)

    def strike(self) -> None:
        """Take all the room."""
        with (self.scratch / "place" / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(_BLOCK):
                pass
            while filler.write(_BLOCK[:4096]):
                pass

    def repair(self) -> None:
        """Give it back."""
        (self.scratch / "place" / "filler").unlink()


class ReadOnly(Healthy):
    """A file system that cannot be written, over the one that could: no segment can be begun."""

    name = "read-only"
    _mounted = False

    def strike(self) -> None:
        """Mount it over the directory."""
        _mount("-t", "tmpfs", "-o", "ro,size=4k", "none", str(self.directory))
        self._mounted = True

    def repair(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.directory)], check=True)
        self._mounted = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Unmount it, whatever happened."""
        if self._mounted:
            self.repair()


class MissingDirectory(Healthy):
    """A directory that was moved away, and a file in its place."""

    name = "missing directory"

    def strike(self) -> None:
        """Move it."""
        (self.scratch / "place").rename(self.scratch / "elsewhere")
        (self.scratch / "place").write_bytes(b"in the way")

    def repair(self) -> None:
        """Take the file away; the directory is made anew by who needs it."""
        (self.scratch / "place").unlink()


class HungFileSystem(Healthy):
    """A file system that is frozen: a write to it does not come back before it thaws."""

    name = "hung file system"
    _frozen = False

    def __enter__(self) -> HungFileSystem:
        """Make one in a file, and mount it."""
        image, place = self.scratch / "image", self.scratch / "place"
        with image.open("wb") as file:
            file.truncate(256 << 20)
        place.mkdir()
        _run("mkfs.ext4", "-q", "-F", str(image))
        _mount("-o", "loop", str(image), str(place))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Thaw and unmount it, whatever happened: nothing may wait for it for ever."""
        if self._frozen:
            self.repair()
        subprocess.run(["umount", "-l", str(self.scratch / "place")], check=True)

    def strike(self) -> None:
        """Freeze it."""
        _run("fsfreeze", "-f", str(self.scratch / "place"))
        self._frozen = True

    def repair(self) -> None:
        """Thaw it."""
        subprocess.run(["fsfreeze", "-u", str(self.scratch / "place")], check=True)
        self._frozen = False


class _Read(Healthy):
    """A stream that a thread of this process reads into a file."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._struck = threading.Event()
        self._resumed = threading.Event()
        self._resumed.set()
        self._thread: threading.Thread | None = None

    def _start(self, work: Callable[[BinaryIO], None]) -> None:
        def run() -> None:
            with (self.scratch / "read").open("wb") as out:
                work(out)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def repair(self) -> None:
        self._struck.clear()
        self._resumed.set()

    def records(self) -> int:
        if self._thread is not None:
            self._thread.join()
        return (self.scratch / "read").read_bytes().count(REQUEST)


class _Socket(_Read):
    """A Unix socket."""

    def __enter__(self) -> _Socket:
        super().__enter__()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self.scratch / "s"))
        self._listening.listen()
        self._start(self._serve)
        return self

    @property
    def settings(self) -> dict[str, str]:
        return {"sink": f"unix://{self.scratch / 's'}"}

    def _serve(self, out: BinaryIO) -> None:
        connection, _ = self._listening.accept()
        with connection, self._listening:
            while part := self._read(connection):
                out.write(part)

    def _read(self, connection: socket.socket) -> bytes:
        self._resumed.wait()
        if not self._struck.is_set():
            return connection.recv(1 << 16)
        time.sleep(SLOW_WRITE_S)
        return connection.recv(STREAM_WRITE_BYTES)


class SlowReader(_Socket):
    """Each write waits 2 ms for its reader."""

    name = "slow"

    def strike(self) -> None:
        """Read slowly."""
        self._struck.set()


class HungReader(_Socket):
    """A reader that stops reading, and stays."""

    name = "hung reader"

    def strike(self) -> None:
        """Stop."""
        self._resumed.clear()


class ClosedPipe(_Read):
    """Standard output, a pipe whose reader goes; a new one comes at the end."""

    name = "closed pipe"

    def __enter__(self) -> ClosedPipe:
        """Make the pipe: one with a name, so that it can be opened again."""
        super().__enter__()
        self._path = self.scratch / "pipe"
        os.mkfifo(self._path)
        reading = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self.stdout = os.open(self._path, os.O_WRONLY)
        os.set_blocking(reading, True)
        self._start(lambda out: self._copy(reading, out))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close this side's end."""
        if self.stdout is not None:
            os.close(self.stdout)
            self.stdout = None

    @property
    def settings(self) -> dict[str, str]:
        """Log to standard output."""
        return {"sink": "stdout"}

    def _copy(self, reading: int, out: BinaryIO) -> None:
        while part := os.read(reading, 1 << 16):
            out.write(part)
            if self._struck.is_set():
                # What is in the pipe stays there for the next reader.
                os.close(reading)
                self._resumed.wait()
                reading = os.open(self._path, os.O_RDONLY)
        os.close(reading)

    def strike(self) -> None:
        """Let the reader go after its next read."""
        self._resumed.clear()
        self._struck.set()

    def records(self) -> int:
        """Return how many request records arrived; the server has ended."""
        if self.stdout is not None:
            os.close(self.stdout)
            self.stdout = None
        return super().records()


DAMAGES: tuple[type[Healthy], ...] = (
    Healthy,
    FullDisk,
    ReadOnly,
    MissingDirectory,
    SlowReader,
    HungFileSystem,
    HungReader,
    ClosedPipe,
)


def _mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotDamageError(f"{' '.join(command)}: {error}") from error
