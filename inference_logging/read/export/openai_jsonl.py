"""OpenAI's batch file with the arrival and the recorded result of each request; docs/export.md has the members.

Readers of batch files take ``custom_id``, ``method``, ``url`` and ``body``. `replay` sends each body at its time and
compares the results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Final

import orjson

from inference_logging.read.export.bodies import Body, body_of
from inference_logging.read.export.formats import Options
from inference_logging.read.export.prompts import output_of, prompt_of
from inference_logging.read.export.requests import LeftOut, Lengths, Request
from inference_logging.read.export.spool import Row
from inference_logging.read.export.traces import write_timed

RECORDED: Final[tuple[str, ...]] = (
    "outcome", "error.type", "error.code", "http.response.status_code", "http.request.body.size",
    "http.response.body.size",
    "duration_s", "chunks", "time_to_first_byte_s", "gen_ai.response.time_to_first_chunk", "stream.keep_alives",
    "chunk_gap_mean_us", "chunk_gap_max_us", "chunk_gaps_us", "gen_ai.operation.name", "gen_ai.request.model",
    "gen_ai.request.stream", "gen_ai.response.model",
    "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.response.time_per_output_token", "engine.queued_s",
    "engine.prefill_s", "engine.decode_s", "engine.e2e_s", "engine.finish_reasons", "sampled_by", "adjusted_count",
    "trace_id", "tenant.id", "service.name", "k8s.pod.name",
)  # fmt: skip
"""Fields of the record that stand under ``recorded``, where it has them: no text, no header, no address."""


class Writer:
    """Writes the batch file."""

    def __init__(self, options: Options) -> None:
        self._prefixes = options.prefixes

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the line without its time."""
        record = request.record
        if record.get("http.request.method") != "POST":
            return LeftOut("not_post")
        body = body_of(record)
        if not isinstance(body, Body):
            return body
        prompt, lengths = prompt_of(record), request.lengths()
        recorded = {name: record[name] for name in RECORDED if name in record}
        recorded |= {"prompt_hash": self._prefixes.hash(prompt), "output_hash": self._prefixes.hash(output_of(record))}
        if isinstance(lengths, Lengths):
            recorded["hash_ids"] = self._prefixes.ids(prompt, lengths.input, request.request_id)
            recorded["hash_block_tokens"] = self._prefixes.block_tokens
        line = {
            "custom_id": request.request_id,
            "method": "POST",
            "url": str(record.get("url.path", "")),
            "body": body.content,
            "body_source": body.source,
            "arrival_unix_nano": request.arrival_nano,
            "recorded": recorded,
        }
        return orjson.dumps(line)

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file; ``timestamp`` is seconds since the first arrival."""
        write_timed(rows, file, lambda nano: nano / 1e9)
