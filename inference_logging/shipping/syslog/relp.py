"""RELP, rsyslog's own protocol: each message is acknowledged by its number; some are under way at any time.

Source: "RELP - The Reliable Event Logging Protocol (Specification)" of librelp. There is no maintained client
of it in Python.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inference_logging.shipping.connections import connect
from inference_logging.shipping.line import Line, Sent
from inference_logging.shipping.syslog.sized import Sized

WINDOW: Final = 128
"""How many messages may be under way. Their acknowledgements fit into the buffers of a connection."""
LAST_NUMBER: Final = 999_999_999
OFFER: Final = b"relp_version=0\nrelp_software=inference-logging\ncommands=syslog"
_OK: Final = b"200"
_HINT: Final = 0
"""The number of what a server says unasked."""
_CLOSING_S: Final = 1.0
_BLOCK: Final = 64 << 10
_HEAD: Final = re.compile(rb"([0-9]{1,9}) ([A-Za-z]{1,32}) ([0-9]{1,9})(?=[ \n])")
_LONGEST_HEAD: Final = 9 + 1 + 32 + 1 + 9 + 1


class RelpError(OSError):
    """The other side does not speak RELP, or refuses what was sent."""


class Frame(NamedTuple):
    """A command or an answer."""

    number: int
    command: bytes
    data: bytes = b""

    def encoded(self) -> bytes:
        """Return it as it is sent."""
        data = b" " + self.data if self.data else b""
        return b"%d %b %d%b\n" % (self.number, self.command, len(self.data), data)


class Frames:
    """Reads frames out of what has come so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._buffer = bytearray()

    def feed(self, block: bytes) -> Iterator[Frame]:
        """Return the frames that are complete with ``block``. Raises ``RelpError`` for what is none."""
        self._buffer += block
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        head = _HEAD.match(self._buffer)
        if head is None:
            if len(self._buffer) >= _LONGEST_HEAD or b"\n" in self._buffer:
                raise RelpError(f"this is not RELP: {bytes(self._buffer[:60])!r}")
            return None
        length = int(head[3])
        begin = head.end() + (1 if length else 0)
        if len(self._buffer) <= begin + length:
            return None
        if self._buffer[begin + length] != ord("\n"):
            raise RelpError(f"a frame without an end: {bytes(self._buffer[:60])!r}")
        frame = Frame(int(head[1]), head[2], bytes(self._buffer[begin : begin + length]))
        del self._buffer[: begin + length + 1]
        return frame


class RelpDestination:
    """The server at host and port; ``context``: by TLS."""

    def __init__(
        self, address: tuple[str, int], sized: Sized, *, timeout_s: float, context: ssl.SSLContext | None
    ) -> None:
        """Keep the parameters of the connection, which is made when there is something to send."""
        self._address, self._sized, self._timeout_s, self._context = address, sized, timeout_s, context
        self._session: _Session | None = None

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them, and wait for the acknowledgement of each."""
        messages, sent = self._sized.messages(lines)
        waiting, under_way = deque(messages), dict[int, tuple[Line, bytes]]()
        try:
            session = self._opened() if waiting else None
            while session is not None and (waiting or under_way):
                taken = [waiting.popleft() for _ in range(min(WINDOW - len(under_way), len(waiting)))]
                numbers = [session.number() for _ in taken]
                # Before they are sent: if that fails, they are sent again.
                under_way |= dict(zip(numbers, taken, strict=True))
                session.send(
                    Frame(number, b"syslog", message) for number, (_, message) in zip(numbers, taken, strict=True)
                )
                for answer in session.answers():
                    if under_way.pop(answer.number, None) is None:
                        raise RelpError(f"acknowledged something else: {answer.number}")
        except OSError as error:
            self._end()
            sent.failed = [line for line, _ in (*under_way.values(), *waiting)]
            sent.error, sent.error_type = f"{type(error).__name__}: {error}", type(error).__name__
        return sent

    def _opened(self) -> _Session:
        if self._session is None:
            self._session = _Session(connect(self._address, self._timeout_s, self._context))
            self._session.open()
        return self._session

    def _end(self) -> None:
        if self._session is not None:
            self._session.connection.close()
        self._session = None

    def close(self) -> None:
        """End the session; the next sending opens another one."""
        if self._session is not None:
            with contextlib.suppress(OSError):
                self._session.close()
        self._end()


class _Session:
    """A connection and the numbers on it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames, self._last = Frames(), 0

    def number(self) -> int:
        self._last = self._last % LAST_NUMBER + 1
        return self._last

    def send(self, frames: Iterator[Frame]) -> None:
        self.connection.sendall(b"".join(frame.encoded() for frame in frames))

    def open(self) -> None:
        number = self.number()
        self.connection.sendall(Frame(number, b"open", OFFER).encoded())
        if next(self.answers()).number != number:
            raise RelpError("did not answer the opening")

    def close(self) -> None:
        self.connection.settimeout(_CLOSING_S)
        self.connection.sendall(Frame(self.number(), b"close").encoded())
        while self.connection.recv(_BLOCK):
            pass

    def answers(self) -> Iterator[Frame]:
        """Wait for one answer at least. Raises OSError for one that is not a success, and at the end."""
        is_answered = False
        while not is_answered:
            block = self.connection.recv(_BLOCK)
            if not block:
                raise ConnectionResetError("the connection was closed before an answer came")
            for frame in self._frames.feed(block):
                yield self._checked(frame)
                is_answered = True

    @staticmethod
    def _checked(frame: Frame) -> Frame:
        if frame.number == _HINT:
            raise ConnectionResetError(f"the server ends the session: {frame.command.decode()}")
        if frame.command != b"rsp" or not frame.data.startswith(_OK):
            text = frame.data.decode("utf-8", "replace")
            raise RelpError(f"the server refuses: {text[:200]}")
        return frame
