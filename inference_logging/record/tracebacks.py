"""The texts of an exception: its type, its message and its stack, each cut to a limit.

One implementation for all records: application loggers, ``Handler``, requests of the middleware and of Triton. The text
of an exception can hold a prompt or a secret; the listener redacts it like all other texts.

The usual ``traceback`` module is not used: it looks at the file of every frame on disk, walks every linked exception
whole, and has no limit in bytes.
"""

from __future__ import annotations

import linecache
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final, TypeAlias

ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException | None, TracebackType | None] | tuple[None, None, None]
)

DEFAULT_FRAMES: Final = 20
DEFAULT_RECORD_BYTES: Final = 64 << 10
CUT: Final = "…"
"""Stands where a text was cut; redaction knows that a part of a secret can stand beside it."""

_MOST_LINKED: Final = 8
"""Exceptions that are shown together: causes, contexts and members of groups."""
_LINE_BYTES: Final = 256
_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_CONTEXT: Final = "During handling of the above exception, another exception occurred:"


class Tracebacks:
    """The limits within which exceptions and stacks are recorded.

    A stack keeps its first and its last frames, ``frames`` in all, and states how many are left out; with 0 there is no
    stack. A message takes a 16th of ``record_bytes`` at most, a stack a quarter.
    """

    __slots__ = ("_frames", "_message_bytes", "_stack_bytes")

    def __init__(self, frames: int = DEFAULT_FRAMES, record_bytes: int = DEFAULT_RECORD_BYTES) -> None:
        self._frames, self._message_bytes, self._stack_bytes = frames, record_bytes // 16, record_bytes // 4

    def attributes(self, info: ExceptionInfo) -> dict[str, str]:
        """Return OpenTelemetry's ``exception.*`` attributes of what ``sys.exc_info`` gives; none of no exception."""
        kind, error, trace = info
        if kind is None:
            return {}
        found = {"exception.type": _cut(_name(kind), _LINE_BYTES), "exception.message": self._message(error)}
        if self._frames:
            found["exception.stacktrace"] = self._stacktrace(kind, error, trace)
        return found

    def texts(self, error: BaseException) -> tuple[str, str, str]:
        """Return type, message and stack of an exception; the stack is empty with 0 ``frames``."""
        found = self.attributes((type(error), error, error.__traceback__))
        return found["exception.type"], found["exception.message"], found.get("exception.stacktrace", "")

    def stack(self, innermost: FrameType) -> str:
        """Return the stack of a call, as ``stack_info`` of the standard library has it; empty with 0 ``frames``."""
        frames: list[tuple[FrameType, int]] = []
        frame: FrameType | None = innermost
        while frame is not None:
            frames.append((frame, frame.f_lineno))
            frame = frame.f_back
        if not self._frames:
            return ""
        lines = _lines(reversed(frames), self._frames)
        return _cut_within("\n".join(["Stack (most recent call last):", *lines]), self._stack_bytes)

    def cut_stack(self, text: str) -> str:
        """Return the text of a stack that others have formatted, cut in its middle."""
        return _cut_within(text, self._stack_bytes)

    def _message(self, error: BaseException | None) -> str:
        try:
            return _cut(str(error), self._message_bytes)
        except Exception:  # noqa: BLE001 - the class is the application's; logging it must not raise
            return "<text that cannot be had>"

    def _stacktrace(self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> str:
        shown = list(_linked(error, set())) if error is not None else []
        allowed = max(self._frames // max(len(shown), 1), 1)
        parts = []
        for heading, linked in shown:
            parts += [heading, ""] if heading else []
            parts += self._one(type(linked), linked, trace if linked is error else linked.__traceback__, allowed)
        if error is None:
            parts = self._one(kind, None, trace, allowed)
        return _cut_within("\n".join(parts), self._stack_bytes)

    def _one(
        self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, frames: int
    ) -> list[str]:
        lines = ["Traceback (most recent call last):", *_lines(_walk(trace), frames)] if trace is not None else []
        message = self._message(error) if error is not None else ""
        lines.append(f"{_name(kind)}: {message}" if message else _name(kind))
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            lines += [_cut(note, self._message_bytes) for note in notes[:_MOST_LINKED] if isinstance(note, str)]
        return lines


def exception_info(given: object) -> ExceptionInfo:
    """Return the exception of an ``exc_info`` argument: an exception, a tuple, or a true value for the current one."""
    if isinstance(given, BaseException):
        return type(given), given, given.__traceback__
    if not given:
        return None, None, None
    if isinstance(given, tuple) and len(given) == len(("type", "value", "traceback")):
        _, error, trace = given
        if isinstance(error, BaseException):
            return type(error), error, trace if isinstance(trace, TracebackType) else None
        return None, None, None
    return sys.exc_info()


def _linked(error: BaseException, seen: set[int]) -> Iterator[tuple[str, BaseException]]:
    """Yield an exception after those that it comes from, and before those that it groups, each with its heading."""
    chain: list[tuple[str, BaseException]] = []
    following: BaseException | None = error
    while following is not None and id(following) not in seen and len(seen) < _MOST_LINKED:
        seen.add(id(following))
        cause, context = following.__cause__, following.__context__
        heading = _CAUSE if cause is not None else _CONTEXT
        chain.append((heading, following))
        following = cause if cause is not None else None if following.__suppress_context__ else context
    for position, (heading, linked) in enumerate(reversed(chain)):
        yield (f"\n{heading}" if position else ""), linked
        members = getattr(linked, "exceptions", None)
        if isinstance(members, tuple):
            yield from _members(members, seen)


def _members(members: tuple[object, ...], seen: set[int]) -> Iterator[tuple[str, BaseException]]:
    for number, member in enumerate(members, 1):
        if not isinstance(member, BaseException) or len(seen) >= _MOST_LINKED:
            continue
        for heading, linked in _linked(member, seen):
            yield heading or f"\nSub-exception {number} of {len(members)}:", linked


def _walk(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _lines(frames: Iterable[tuple[FrameType, int]], limit: int) -> list[str]:
    """Return the lines of the first and last frames, and between them the number of omitted ones."""
    first: list[tuple[FrameType, int]] = []
    last: deque[tuple[FrameType, int]] = deque(maxlen=limit - limit // 2)
    count = 0
    for count, frame in enumerate(frames, 1):
        (last if count > limit // 2 else first).append(frame)
    left_out = count - len(first) - len(last)
    noun = "frame" if left_out == 1 else "frames"
    between = [f"  [{left_out} {noun} left out]"] if left_out else []
    return [*map(_line, first), *between, *map(_line, last)]


def _line(frame_and_number: tuple[FrameType, int]) -> str:
    frame, number = frame_and_number
    code = frame.f_code
    place = f'  File "{_cut(code.co_filename, _LINE_BYTES)}", line {number}, in {_cut(code.co_name, _LINE_BYTES)}'
    source = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    return f"{place}\n    {_cut(source, _LINE_BYTES)}" if source else place


def _name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _cut(text: str, limit: int) -> str:
    """Return ``text``, or as much of its beginning as ``limit`` bytes of UTF-8 hold, and the sign of a cut."""
    encoded = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(encoded) <= limit:
        return text
    return encoded[: max(limit - len(CUT.encode()), 0)].decode("utf-8", "ignore") + CUT


def _cut_within(text: str, limit: int) -> str:
    """Return ``text``, or both its ends: the last line holds the error."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= limit:
        return text
    half = limit // 2 - len(CUT.encode())
    return encoded[:half].decode("utf-8", "ignore") + CUT + encoded[-half:].decode("utf-8", "ignore")
