"""What a format is, and the list of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import IO, Final, NamedTuple, Protocol

from inference_logging.read.export import traces
from inference_logging.read.export.prompts import Prefixes
from inference_logging.read.export.requests import LeftOut, Request
from inference_logging.read.export.spool import Row


class Options(NamedTuple):
    """What a format is made with."""

    prefixes: Prefixes
    with_text: bool
    """Whether captured texts may stand in a file that can do without."""


class Format(Protocol):
    """Makes a file of requests: first a row of each, then the file of the rows in the order of their arrival."""

    def row(self, request: Request) -> bytes | LeftOut:
        """Return what the file will say about a request, but for its time; or why it can't hold the request."""

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""


KINDS: Final = {
    "mooncake": 512,
    "vllm-timed": 16,
    "aiperf": 512,
    "guidellm": 512,
    "openai-jsonl": 512,
    "sharegpt": 512,
    "perfetto": 512,
    "parquet": 512,
}
"""The formats, and how many tokens of a prompt the readers of each take for one id.

The module of each is named like it, with underscores, and has a class ``Writer``; `traces` has those of traces.
"""


def writer(name: str, options: Options) -> Format:
    """Return the writer of a format. Raises ``MissingExtraError`` if it needs what isn't installed."""
    if name in traces.TIMES:
        return traces.Writer(options.prefixes, traces.TIMES[name])
    if name == "aiperf":
        return traces.AiperfWriter(options.prefixes, with_text=options.with_text)
    module = importlib.import_module(f"inference_logging.read.export.{name.replace('-', '_')}")
    made: Format = module.Writer(options)
    return made
