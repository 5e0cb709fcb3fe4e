"""Messages and scopes whose own code empties them while they are looked at; run by a test in a process of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference_logging import Config, InferenceLoggingMiddleware, Logger

NAMES = ["type", "body", "more_body", "status", "headers", "method", "path", "root_path", "app_root_path"]
NAMES += ["route", "client", "http_version", "fastapi", "count", "trailers", "more_trailers"]
FRESH = 7  # so many of each text are made anew, so that nothing else keeps them alive


class EmptyingKey:
    """A key in the place of ``name`` that empties its dictionary when it is compared with another."""

    def __init__(self, name: str, owner: dict[Any, Any]) -> None:
        self._hash = hash(name)
        self._owner = owner
        self.is_armed = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self.is_armed:
            self._owner.clear()
        return self is other


class Emptying:
    """A value that empties its dictionary whenever it is looked at."""

    def __init__(self, owner: dict[Any, Any]) -> None:
        self._owner = owner

    def __bool__(self) -> bool:
        self._owner.clear()
        return True

    def __index__(self) -> int:
        self._owner.clear()
        return 200

    def __getattr__(self, name: str) -> Any:
        self._owner.clear()
        return "/" + "r" * 500

    def __getitem__(self, key: int) -> Any:
        self._owner.clear()
        return "c" * 500


def fresh(text: str) -> str:
    return "".join([text] * FRESH)


def scope() -> dict[Any, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": fresh("/path"),
        "root_path": fresh("/root"),
        "app_root_path": fresh("/root")[:5],
        "http_version": fresh("1.1"),
        "headers": [(b"content-type", b"application/json"), (b"x-request-id", b"x" * 100)],
        "client": (fresh("client"), 1),
    }


def messages() -> list[dict[Any, Any]]:
    return [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]},
        {"type": "http.response.body", "body": b"x" * 1000 + bytes([65]), "more_body": True},
        {"type": "http.response.body", "body": b"x" * 1000 + bytes([66])},
    ]


def damaged(make: Callable[[], dict[Any, Any]]) -> list[dict[Any, Any]]:
    found = []
    for name in NAMES:
        with_key: dict[Any, Any] = {}
        key = EmptyingKey(name, with_key)
        with_key[key] = 1
        with_key.update(make())
        key.is_armed = True
        found.append(with_key)
        with_value = make()
        with_value[name] = Emptying(with_value)
        if name != "type":
            found.append(with_value)
    return found


def serve(served: Any, scope: dict[Any, Any], sent: list[dict[Any, Any]], received: dict[Any, Any]) -> None:
    async def receive() -> Any:
        return received

    async def send(message: Any) -> None:
        """Keep nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        while sent:
            await send(sent.pop(0))

    served.app = app
    with contextlib.suppress(StopIteration):
        served(scope, receive, send).send(None)


def main(directory: Path) -> None:
    """Serve every damage once."""
    config = Config(directory=directory / "segments", queue_directory=directory / "queues", queue_bytes=1 << 20)
    served: Any = InferenceLoggingMiddleware(None, config=config)  # type: ignore[arg-type]
    with Logger(config):
        request = {"type": "http.request", "body": b"{}" + bytes(1000)}
        for emptied in damaged(scope):
            serve(served, emptied, messages(), dict(request))
        for position in range(3):
            for emptied in damaged(lambda position=position: messages()[position]):  # type: ignore[misc]
                sent = messages()
                sent[position] = emptied
                serve(served, scope(), sent, dict(request))
        for emptied in damaged(lambda: dict(request)):
            serve(served, scope(), messages(), emptied)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
