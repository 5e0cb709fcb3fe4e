"""Drives one request by hand, with and without the middleware, so that both can be compared step by step.

There is no event loop: the server's awaitables suspend with a token, the driver resumes them, and may throw something
in at any suspension, as a loop does that cancels. The order of tokens shows that nothing else is ever waited for.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.support import FRAMING, parse

ServeHttp = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[Any]]

# An application that waits for ever is thrown away after this many suspensions.
_MOST_SUSPENSIONS = 200


@dataclass(frozen=True)
class Receive:
    """The application receives a message."""


@dataclass(frozen=True)
class Send:
    """The application sends ``message``."""

    message: object


@dataclass(frozen=True)
class Raise:
    """The application raises ``error``."""

    error: BaseException


@dataclass(frozen=True)
class Return:
    """The application returns ``value``."""

    value: object


@dataclass(frozen=True)
class Pause:
    """The application waits for something of its own."""


Action = Receive | Send | Raise | Return | Pause


@dataclass
class Script:
    """What the application does, what the server does, and what is thrown in at which suspension."""

    scope: MutableMapping[str, Any]
    actions: list[Action]
    incoming: list[object] = field(default_factory=list)
    # What the server raises in the n-th send; from outside of its coroutine where ``refuses_at_once``.
    refusals: dict[int, BaseException] = field(default_factory=dict)
    refuses_at_once: bool = False
    # The application goes on after an exception of the server's.
    is_tolerant: bool = False
    throw_at: int | None = None
    throw: BaseException | None = None


@dataclass
class Seen:
    """What one side saw of the other, objects by identity; equal with and without the middleware."""

    tokens: list[str] = field(default_factory=list)
    scope: int = 0
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    caught: list[int] = field(default_factory=list)
    raised: object = None
    returned: int = 0


class _Suspend:
    def __init__(self, token: str) -> None:
        self._token = token

    def __await__(self) -> Generator[str, None, None]:
        yield self._token


def application(script: Script, seen: Seen) -> ServeHttp:
    """Return the application of ``script``; what it sees goes into ``seen``."""

    async def act(action: Action, receive: Any, send: Any) -> None:
        if isinstance(action, Receive):
            seen.received.append(id(await receive()))
        elif isinstance(action, Send):
            await send(action.message)
        else:
            await _Suspend("pause")

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> object:
        seen.scope = id(scope)
        for action in script.actions:
            if isinstance(action, Raise):
                raise action.error
            if isinstance(action, Return):
                return action.value
            try:
                await act(action, receive, send)
            except Exception as error:
                seen.caught.append(id(error))
                if not script.is_tolerant:
                    raise
        return None

    return app


def server(script: Script, seen: Seen) -> tuple[Callable[[], Awaitable[object]], Callable[[object], Awaitable[None]]]:
    """Return the server's ``receive`` and ``send``."""
    incoming = iter(script.incoming)

    async def receive() -> object:
        await _Suspend("receive")
        for message in incoming:
            if isinstance(message, BaseException):
                raise message
            return message
        while True:
            await _Suspend("nothing more comes")

    async def sending(number: int) -> None:
        await _Suspend("send")
        if number in script.refusals:
            raise script.refusals[number]

    def send(message: object) -> Awaitable[None]:
        seen.sent.append(id(message))
        number = len(seen.sent) - 1
        if script.refuses_at_once and number in script.refusals:
            raise script.refusals[number]
        return sending(number)

    return receive, send


def drive(
    script: Script, wrap: Callable[[ServeHttp], ServeHttp] = lambda app: app, most_suspensions: int = _MOST_SUSPENSIONS
) -> Seen:
    """Serve ``script`` with its application behind ``wrap`` and return what was seen."""
    seen = Seen()
    served: Any = wrap(application(script, seen))(script.scope, *server(script, seen))
    try:
        _run(served, script, seen, most_suspensions)
    except StopIteration as end:
        seen.returned = id(end.value)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must be the same on both sides
        # One that a script holds must be the same object; one that Python makes says the same.
        seen.raised = id(error) if _is_scripted(error, script) else (type(error), str(error))
    return seen


def _run(served: Any, script: Script, seen: Seen, most_suspensions: int) -> None:
    seen.tokens.append(served.send(None))
    while len(seen.tokens) < most_suspensions:
        if script.throw is not None and script.throw_at == len(seen.tokens) - 1:
            seen.tokens.append(served.throw(script.throw))
        else:
            seen.tokens.append(served.send(None))
    served.close()


def _is_scripted(error: BaseException, script: Script) -> bool:
    scripted = [action.error for action in script.actions if isinstance(action, Raise)]
    known = [*scripted, *script.incoming, *script.refusals.values(), script.throw]
    return any(error is one for one in known)


class Tail:
    """Reads what was added to a directory's segments since the last look, each line parsed strictly."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}

    def read(self) -> list[dict[str, Any]]:
        """Return the new records, without headers and footers."""
        found: list[dict[str, Any]] = []
        for path in sorted(path for path in self._directory.glob("*.jsonl") if not path.is_symlink()):
            with path.open("rb", buffering=io.DEFAULT_BUFFER_SIZE) as segment:
                segment.seek(self._offsets.get(path, 0))
                content = segment.read()
                self._offsets[path] = segment.tell()
            assert not content or content.endswith(b"\n")
            # Only the newline ends a line: a parser that also breaks at others would see forged lines.
            found += [parse(line) for line in content.split(b"\n") if line]
        return [record for record in found if record["event_name"] not in FRAMING]
