"""A real object storage: a Versity S3 Gateway on a directory, and a wire to it that is slow and breaks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from tests.kit.servers import free_port
from tests.ship.bucket import CREDENTIALS, NAME
from tests.ship.programs import Program
from tests.tools.tools import tool

_BLOCK_BYTES: Final = 64 << 10


class Objects(Program):
    """A gateway that keeps everything below ``directory``."""

    def __init__(self, directory: Path) -> None:
        binary = tool("versitygw")
        self.port = free_port()
        root, side = directory / "objects", directory / "side"
        for made in (root / NAME, side):
            made.mkdir(parents=True)
        key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
        # File systems of CI have no extended attributes: what is known of an object lies beside it.
        command: list[str | Path] = [
            binary,
            "--port",
            f"127.0.0.1:{self.port}",
            "--quiet",
            "--access",
            key,
            "--secret",
            secret,
        ]
        super().__init__([*command, "posix", "--sidecar", str(side), str(root)], directory / "log", self._answers)
        self.root = root / NAME

    def url(self, port: int | None = None) -> str:
        """Return where objects go, through the gateway's own port or another one."""
        return f"s3://{NAME}/here?endpoint=http://127.0.0.1:{port or self.port}"

    def uploads(self, *keys: str) -> set[str]:
        """Return the uploads in parts that are not finished: all, or those of these keys below the prefix."""
        folders = [hashlib.sha256(f"here/{key}".encode()).hexdigest() for key in keys] or ["*"]
        return {path.name for one in folders for path in (self.root / ".sgwtmp" / "multipart").glob(f"{one}/*/")}

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5)
        except urllib.error.HTTPError:
            return True  # it asks for a signature
        except OSError:
            return False
        return True


class Wire:
    """A port before ``port``: slow, and with connections that break after some bytes, of a seeded number."""

    def __init__(self, port: int, *, bytes_s: float, breaks_after: int, seed: int) -> None:
        self._port, self._bytes_s, self._breaks_after = port, bytes_s, breaks_after
        self._random = random.Random(seed)
        self.broken = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._ending = threading.Event()
        self._accepts = threading.Thread(target=self._accept)

    def __enter__(self) -> Wire:
        self._accepts.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepts.join()

    def _accept(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._server.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    client.close()
                    raise
                left = self._random.randint(1, 2 * self._breaks_after)
                for pair in ((client, server, left), (server, client, 1 << 60)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (block := one.recv(_BLOCK_BYTES)):
                other.sendall(block[:left])
                left -= len(block)
                time.sleep(len(block) / self._bytes_s)
            self.broken += left <= 0
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def credentials() -> dict[str, str]:
    """Return an environment with the gateway's keys."""
    return {**os.environ, **CREDENTIALS}
