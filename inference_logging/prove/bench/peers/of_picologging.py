"""picologging: the standard library's interface in C++. Where it does not work, its row says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place, nothing
from inference_logging.prove.bench.record import MESSAGE, Call, fields


def configured(place: Place) -> Any:
    """Configure: the caller formats and writes. Records have no `extra`, so the fields are the message's argument."""
    import orjson
    import picologging

    class JsonLine(picologging.Formatter):  # type: ignore[misc,unused-ignore]
        def format(self, record: Any) -> str:
            line = {"timestamp": record.created, "level": record.levelname, "message": record.msg, **record.args}
            return orjson.dumps(line).decode()

    handler = picologging.FileHandler(str(place.files / "picologging.jsonl"))
    handler.setFormatter(JsonLine())
    logger = picologging.getLogger("bench")
    logger.setLevel(picologging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    return logger


@contextmanager
def _opened(place: Place, text: str) -> Iterator[Opened]:
    logger = configured(place)
    yield Opened(_with_argument(logger.info, text), nothing, _with_argument(logger.debug, text), nothing)


def _with_argument(method: Callable[..., Any], text: str) -> Call:
    return lambda number: method(MESSAGE, fields(number, text))


_MODULES: Final = (("picologging", "picologging"),)
PEERS: Final = (
    Peer("picologging", "picologging, FileHandler", "picologging", _opened, configured, _MODULES),
)  # fmt: skip
