"""What is recorded of a request and its stream."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import MIB, Bytes, Parameters, matching, none_if_empty, parameter

_PROVIDER = re.compile(r"[a-z0-9._-]{1,64}")


class RequestParameters(Parameters):
    """What is recorded of a request and its stream."""

    chunks: Literal["off", "summary", "timeline", "events"] = parameter(
        "timeline",
        "What is recorded of a streamed response. off: nothing; summary: count and time to the first chunk; timeline: "
        "also the gaps between chunks; events: also one record per chunk.",
    )
    chunk_timeline_limit: int = parameter(
        256,
        "Gaps kept per request; later chunks are only counted.",
        unit="chunks",
        limits=(0, 65536),
        advanced=True,
    )
    capture_head_bytes: Bytes = parameter(
        1024,
        "First bytes of a body, copied for the listener to read model, limits and usage from; never stored as text. 0 "
        "= off.",
        unit="bytes",
        limits=(0, 1 * MIB),
        advanced=True,
    )
    capture_tail_bytes: Bytes = parameter(
        2048,
        "Last bytes of a body, copied for the same purpose, since usage and finish reason are there. 0 = off.",
        unit="bytes",
        limits=(0, 1 * MIB),
        advanced=True,
    )
    semconv: Literal["1.41", "next"] = parameter(
        "1.41",
        "Names of OpenTelemetry's GenAI conventions. 1.41: the last published ones; next: the unreleased ones, which a "
        "segment's header then names. They rename one field used here, gen_ai.usage.cache_creation.input_tokens, to "
        "gen_ai.usage.cache_write.input_tokens.",
        advanced=True,
    )
    provider_name: Annotated[str | None, BeforeValidator(none_if_empty), matching(_PROVIDER)] = parameter(
        None,
        "gen_ai.provider.name of requests with an operation, such as vllm or openai. Empty = none.",
        allowed="1 to 64 lowercase letters, digits, '.', '_' or '-', or empty",
        advanced=True,
    )
    server_record: Literal["off", "on"] = parameter(
        "on",
        "on: each serving process writes one record server.started when it opens, with versions, a digest of the "
        "configuration, and vLLM's or Triton's model.",
        advanced=True,
    )
    stack_frames: int = parameter(
        20,
        "Frames recorded of an exception's stack, the first and the last of them, with the number omitted. 0 = no "
        "stack. Messages and stacks of exceptions can hold texts of the request, and are redacted as other fields.",
        unit="frames",
        limits=(0, 1000),
    )
    in_flight_slots: int = parameter(
        1024,
        "Requests in flight that the queue file holds, 2 KiB each: if their process is killed, they are still "
        "recorded with everything that had happened so far. While all are taken, further requests are recorded only "
        "at their end, and counted. 0 = off.",
        unit="requests per process",
        limits=(0, 65536),
        advanced=True,
    )
