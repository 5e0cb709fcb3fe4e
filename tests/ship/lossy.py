"""A wire that loses answers: what was sent is there, and the shipper does not know it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from tests.kit.support import wait_until

_REQUESTS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ")


class LossyWire:
    """A port before an HTTP server's, which loses the answer to a delivery when it is asked to.

    ``delivers``: what stands in the head of a request that delivers records.
    """

    def __init__(self, port: int, delivers: bytes = b"_bulk") -> None:
        self._port, self._delivers = port, delivers
        self._loses, self.has_lost, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._accepts = threading.Thread(target=self._accept)
        self._held: list[socket.socket] = []

    def __enter__(self) -> LossyWire:
        self._accepts.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepts.join()
        self.break_off()

    def via(self, url: str) -> str:
        """Return a URL of the server by this wire."""
        return url.replace(f":{self._port}/", f":{self.port}/")

    def lose_an_answer(self) -> None:
        """Wait until a delivery is done whose answer does not come."""
        self.has_lost.clear()
        self._loses.set()
        wait_until(self.has_lost.is_set, "an answer to be lost")

    def break_off(self) -> None:
        """Break the connections whose answers were lost."""
        while self._held:
            _shut(self._held.pop())

    def _accept(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    _shut(client)
                    continue
                delivery = threading.Event()
                for target in (self._ask, self._answer):
                    threading.Thread(target=target, args=(client, server, delivery), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, delivery: threading.Event) -> None:
        """Pass requests on, and note whether the last one delivers."""
        with contextlib.suppress(OSError):
            while block := client.recv(1 << 16):
                if block.startswith(_REQUESTS):
                    delivers = self._delivers in block.partition(b"\r\n\r\n")[0]
                    (delivery.set if delivers else delivery.clear)()
                server.sendall(block)
        _shut(server)

    def _answer(self, client: socket.socket, server: socket.socket, delivery: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while block := server.recv(1 << 16):
                if delivery.is_set() and self._loses.is_set():
                    self._loses.clear()
                    self._held.append(client)
                    self.has_lost.set()
                    return
                client.sendall(block)
        if client not in self._held:
            _shut(client)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
