"""What an export says about each request: when it is due, what is sent, and what became of it when it was recorded.

Two kinds of files are read. `openai-jsonl` has the bodies. Traces (`mooncake`, `vllm-timed`, `guidellm`, `aiperf`)
have lengths and prefix ids, of which prompts are made. The file is read twice and never held: first to check every row,
so that a wrong one is found before anything is sent, then as requests come due.

Where two prefix ids are equal, so is the text of the block: a block is made of its id alone, so every run and every
machine makes the same text, and a prefix cache finds what it found with the recorded prompts. One word stands for one
token: the words are short, frequent English ones, which the vocabularies of common models hold with the blank before
them. How many tokens a model counts is in the comparison.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from inference_logging.errors import InferenceLoggingError

BODIES: Final = "openai-jsonl"


class Form(NamedTuple):
    """A form of traces: seconds that 1 stands for in ``timestamp``, and tokens that one id stands for."""

    unit_s: float
    block_tokens: int


TRACES: Final = {
    "mooncake": Form(1e-3, 512),
    "vllm-timed": Form(1.0, 16),
    "guidellm": Form(1.0, 512),
    "aiperf": Form(1e-3, 512),
}
"""As `export` writes them."""

ABORTED: Final = "client_disconnect"
_MOST_TOKENS: Final = 1 << 24
"""More than any prompt has; a larger length is damaged."""
_ROOM_TOKENS: Final = 16


class ReplayError(InferenceLoggingError, ValueError):
    """A file that can't be replayed; the message names file, line, member and value."""


class Recorded(NamedTuple):
    """What became of a request when it was recorded; None: not in the file. Times are seconds after its arrival."""

    outcome: str
    status: int | None = None
    duration_s: float | None = None
    first_chunk_s: float | None = None
    chunks: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    per_token_s: float | None = None
    chunk_gap_s: float | None = None
    """The mean of all gaps."""


class Planned(NamedTuple):
    """A request to send, ``offset_s`` seconds after the first arrival of the recording."""

    offset_s: float
    request_id: str
    path: str
    body: bytes
    recorded: Recorded

    @property
    def abort_chunks(self) -> int | None:
        """The chunks after which the client leaves; None if it stays, or leaves before the first one."""
        return (self.recorded.chunks or None) if self.recorded.outcome == ABORTED else None

    @property
    def abort_s(self) -> float | None:
        """The seconds after which the client leaves; None if it stays, or leaves after a number of chunks."""
        return self.recorded.duration_s if self.recorded.outcome == ABORTED and not self.abort_chunks else None


class Changes(NamedTuple):
    """What is sent instead of what the file says: ``members`` of every body; the path and block size of traces."""

    members: Mapping[str, Any]
    trace_path: str = "/v1/completions"
    block_tokens: int | None = None


class Schedule:
    """The requests of the file at ``path`` in the order of their arrival, at most ``limit`` of them.

    ``form`` is `openai-jsonl` or one of ``TRACES``; None: taken from the first row, where it can be seen.
    Raises ``ReplayError`` for the first row that can't be replayed, and ``OSError`` if the file can't be read.
    """

    def __init__(self, path: Path, form: str | None, changes: Changes, limit: int | None = None) -> None:
        """Check every row."""
        self.path, self._changes, self._limit = path, changes, limit
        self.form = form or self._form()
        self.requests, self.last_offset_s, self.aborts = 0, 0.0, 0
        for planned in self:
            if planned.offset_s < self.last_offset_s:
                raise ReplayError(
                    f"{path}: request {self.requests + 1}: timestamp is before that of the request above it; "
                    "sort the file by its timestamps"
                )
            self.requests += 1
            self.last_offset_s = planned.offset_s
            self.aborts += planned.recorded.outcome == ABORTED
        if not self.requests:
            raise ReplayError(f"{path}: it has no requests")

    def __iter__(self) -> Iterator[Planned]:
        """Read the requests."""
        first: float | None = None
        for count, (number, row) in enumerate(self._rows()):
            if self._limit is not None and count >= self._limit:
                return
            reader = _Row(f"{self.path}:{number}", row)
            if self.form == BODIES:
                planned = reader.with_body(self._changes)
            else:
                planned = reader.of_trace(TRACES[self.form], self._changes)
            first = planned.offset_s if first is None else first
            yield planned._replace(offset_s=planned.offset_s - first)

    def _rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise ReplayError(f"{self.path}:{number}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise ReplayError(f"{self.path}:{number}: must be an object, not {type(row).__name__}")
                yield number, row

    def _form(self) -> str:
        _, row = next(self._rows(), (0, {BODIES: None}))
        if "body" in row or BODIES in row:
            return BODIES
        if isinstance(row.get("timestamp"), int) and "hash_ids" in row:
            return "mooncake"
        raise ReplayError(
            f"{self.path}: the first row fits several formats; name one with --format ({', '.join(TRACES)})"
        )


class _Row:
    """Reads one row; ``place`` is file and line."""

    def __init__(self, place: str, row: Mapping[str, Any]) -> None:
        self._place, self._row = place, row

    def with_body(self, changes: Changes) -> Planned:
        path, body = self._row.get("url"), self._row.get("body")
        # Anything else would be joined to the host's name.
        if not isinstance(path, str) or not path.startswith("/"):
            raise self._error("url", path, "a path that begins with /")
        if not isinstance(body, dict):
            raise self._error("body", body, "an object")
        if self._row.get("method", "POST") != "POST":
            raise self._error("method", self._row["method"], "POST")
        found = self._row.get("recorded")
        recorded: Mapping[str, Any] = found if isinstance(found, dict) else {}
        return Planned(
            self._time("timestamp"),
            self._id(),
            quote(path, safe="/:@!$&'()*+,;=~"),
            orjson.dumps({**body, **changes.members}),
            Recorded(
                str(recorded.get("outcome", "")),
                _whole(recorded.get("http.response.status_code")),
                _finite(recorded.get("duration_s")),
                _finite(recorded.get("gen_ai.response.time_to_first_chunk")),
                _whole(recorded.get("chunks")),
                _whole(recorded.get("gen_ai.usage.input_tokens")),
                _whole(recorded.get("gen_ai.usage.output_tokens")),
                _finite(recorded.get("gen_ai.response.time_per_output_token")),
                gap_us / 1e6 if (gap_us := _finite(recorded.get("chunk_gap_mean_us"))) is not None else None,
            ),
        )

    def of_trace(self, form: Form, changes: Changes) -> Planned:
        outcome, request_id = str(self._row.get("outcome", "")), self._id()
        output = self._length("output_length")
        counted = output if self._row.get("output_length_from", "usage") == "usage" else None
        payload = self._row.get("payload")
        tokens = None if isinstance(payload, dict) else self._length("input_length")
        if tokens is None:
            body = {**payload} if isinstance(payload, dict) else {}
        else:
            # The answer to a client that leaves must go on beyond the point where it leaves.
            most = 2 * output + _ROOM_TOKENS if outcome == ABORTED else output
            prompt = prompt_text(*self._blocks(tokens, changes.block_tokens or form.block_tokens, request_id))
            body = {"prompt": prompt, "max_tokens": max(1, most), "stream": True}
            body |= {"stream_options": {"include_usage": True}}
        if "model" not in body and "model" not in changes.members:
            raise ReplayError(f"{self._place}: a trace names no model: give --model")
        return Planned(
            self._time("timestamp") * form.unit_s,
            request_id,
            changes.trace_path,
            orjson.dumps({**body, **changes.members}),
            Recorded(
                outcome,
                duration_s=_finite(self._row.get("duration")),
                chunks=_whole(self._row.get("chunks")),
                input_tokens=tokens,
                output_tokens=counted,
            ),
        )

    def _blocks(self, tokens: int, block_tokens: int, request_id: str) -> tuple[list[int], int, int]:
        needed = -(-tokens // block_tokens)
        ids = self._row.get("hash_ids")
        if ids is None:
            # Not known: a prompt of its own, as other load generators make one for such a row.
            own = zlib.crc32((request_id or self._place).encode())
            return [own << 32 | at for at in range(needed)], tokens, block_tokens
        if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
            raise self._error("hash_ids", ids, "a list of whole numbers")
        if len(ids) != needed:
            raise ReplayError(
                f"{self._place}: hash_ids: {len(ids)} ids of {tokens} tokens are not blocks of {block_tokens} tokens; "
                "see --format and --block-tokens"
            )
        return ids, tokens, block_tokens

    def _id(self) -> str:
        for name in ("custom_id", "request_id"):
            if isinstance(self._row.get(name), str):
                return str(self._row[name])
        return ""

    def _length(self, name: str) -> int:
        value = _whole(self._row.get(name))
        if value is None or value > _MOST_TOKENS:
            raise self._error(name, self._row.get(name), f"a whole number up to {_MOST_TOKENS}")
        return value

    def _time(self, name: str) -> float:
        value = _finite(self._row.get(name))
        if value is None or value < 0:
            raise self._error(name, self._row.get(name), "a number from 0 on")
        return value

    def _error(self, name: str, value: object, must: str) -> ReplayError:
        shown = orjson.dumps(value).decode()
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        return ReplayError(f"{self._place}: {name}={shown}: must be {must}")


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]  # it is a number


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_TEXT: Final = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part"
)
WORDS: Final = tuple(_TEXT.split())
_KEPT_BLOCKS: Final = 4096
"""Blocks that are kept: a block of 512 words has about 2 KiB."""


def prompt_text(hash_ids: Sequence[int], tokens: int, block_tokens: int) -> str:
    """Return a prompt of ``tokens`` words, the first ``block_tokens`` of which are made of the first id, and so on.

    ``hash_ids`` has one id for each block, the last one counted.
    """
    full = tokens // block_tokens
    blocks = [_block(number, block_tokens) for number in hash_ids[:full]]
    if rest := tokens - full * block_tokens:
        blocks.append(_block(hash_ids[full], rest))
    return " ".join(blocks)


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(number: int, words: int) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=words))
