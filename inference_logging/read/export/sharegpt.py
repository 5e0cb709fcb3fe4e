"""Conversations as ShareGPT has them: a JSON list of ``{"id", "conversations": [{"from", "value"}, …]}``.

`vllm bench serve` takes the first two values as prompt and answer, AIPerf each ``human`` that a ``gpt`` follows. So a
conversation here has these two speakers only, by turns, and begins with ``human``: what system and tools say goes
before what follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final

import orjson

from inference_logging.read.export.formats import Options
from inference_logging.read.export.requests import LeftOut, Request
from inference_logging.read.export.spool import Row

_BETWEEN: Final = "\n\n"
_ANSWERS: Final = frozenset({"assistant", "model"})


class Writer:
    """Writes the list."""

    def __init__(self, _options: Options) -> None:
        """Need no options."""

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the conversation that a request continued, and its answer."""
        record = request.record
        asked, answered = record.get("gen_ai.input.messages"), record.get("gen_ai.output.messages")
        if not isinstance(asked, list) or not isinstance(answered, list) or not answered:
            return LeftOut("no_text")
        if record.get("input_truncated") or record.get("output_truncated"):
            return LeftOut("text_truncated")
        system = [{"role": "system", "parts": record.get("gen_ai.system_instructions") or []}]
        turns: list[dict[str, str]] = []
        # Of several choices the first: a conversation has one answer.
        for message in [*system, *asked, answered[0]]:
            said = list(_texts(message))
            if None in said:
                return LeftOut("no_text")
            _say(turns, "gpt" if message.get("role") in _ANSWERS else "human", "".join(filter(None, said)))
        if len(turns) < 2 or turns[0]["from"] != "human" or turns[-1]["from"] != "gpt":
            return LeftOut("no_text")
        return orjson.dumps({"id": request.request_id, "conversations": turns})

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        between = b"["
        for row in rows:
            file.write(between + b"\n" + row.content)
            between = b","
        file.write(b"\n]\n" if between == b"," else b"[]\n")


def _texts(message: Mapping[str, Any]) -> Iterator[str | None]:
    """Iterate over what a message says; None stands for a part that is no text, or not all of it."""
    for part in message.get("parts") or ():
        said = next((part[member] for member in ("content", "arguments", "response") if member in part), None)
        yield said if isinstance(said, str) and not part.get("truncated") else None


def _say(turns: list[dict[str, str]], speaker: str, text: str) -> None:
    if turns and turns[-1]["from"] == speaker:
        turns[-1]["value"] = _BETWEEN.join(filter(None, (turns[-1]["value"], text)))
    elif text or speaker == "gpt":
        turns.append({"from": speaker, "value": text})
