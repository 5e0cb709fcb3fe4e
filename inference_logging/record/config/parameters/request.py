"""Requests: what is recorded of them and their streams, which ones are kept, whose they are, and their ids."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import (
    MIB,
    Bytes,
    FewAndDifferent,
    Networks,
    Parameters,
    PathPatterns,
    Ratio,
    RouteRatios,
    matching,
    none_if_empty,
    parameter,
    split_list,
    upper,
)

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
        "Last bytes of a body, copied for the same purpose, since usage and finish reason are there; events of a "
        "stream that differ only in their text are left out. 0 = off.",
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


PROBES = (
    *("/health", "/healthz", "/livez", "/readyz", "/ready", "/live", "/ping", "/metrics"),
    "/v2/health/*",  # of the KServe protocol: live, ready
)
_PATH_PATTERN = "a path in which {name} is any one segment and * at the end the rest"


class SamplingParameters(Parameters):
    """Which records are kept."""

    level: Annotated[Literal["DEBUG", "INFO", "WARN", "ERROR"], BeforeValidator(upper)] = parameter(
        "INFO",
        "Lowest severity that get_logger accepts; records below it are ignored and not counted. Request records are "
        "not affected.",
    )
    sampler: Literal["parent", "probability", "otel-legacy-python", "otel-legacy-java"] = parameter(
        "parent",
        "How a request is sampled at its start, by trace id. parent: a caller in trusted_callers decides, by th or "
        "else its sampled flag; all other requests, and every request with probability, use consistent probability "
        "(th, rv). otel-legacy-python (also Go's) and otel-legacy-java: as TraceIdRatioBased of these SDKs. In each, a "
        "keyed hash replaces the trace id of an untrusted caller. Errors and aborted requests are always kept.",
    )
    trusted_callers: Networks = parameter(
        (),
        "Networks of callers whose trace ids and sampling decisions count: the services of a mesh, which then decide "
        "as OpenTelemetry does. For any other caller a keyed hash of the trace id decides (key: capture_hash_key_file, "
        "else one per host), and this server sends its own decision on to other services. * = every caller, even one "
        "without an address; empty = none.",
        allowed="networks such as 10.0.0.0/8 or fd00::/8, addresses, or *",
    )
    sample_ratio: Ratio = parameter(
        1.0,
        "Share of traces whose successful requests are recorded, decided by trace id (see trusted_callers); errors are "
        "always kept. 0 = errors only.",
        unit="share of traces",
        allowed="0, or from 2**-56 to 1",
    )
    sample_precision: int = parameter(
        4,
        "Significant hex digits of the rejection threshold made from sample_ratio: 4 is OpenTelemetry's "
        "recommendation, 14 is exact.",
        unit="hex digits",
        limits=(1, 14),
        advanced=True,
    )
    sample_routes: RouteRatios = parameter(
        (),
        "Ratios for single routes in place of sample_ratio; the first pattern that matches the path counts. In a "
        "variable: /v1/*=0.1, /items/{id}=1.",
        unit="share of traces",
        allowed=f"path patterns and their ratios, 0 or from 2**-56 to 1; a pattern is {_PATH_PATTERN}",
    )
    slow_s: float = parameter(
        0.0,
        "Duration from which a request is recorded whatever the sampler decided. 0 = off.",
        unit="s",
        limits=(0.0, 86400.0),
    )
    skip_paths: PathPatterns = parameter(
        PROBES,
        "Paths that are recorded only if they fail: probes and scrapes. This package's own routes are never recorded.",
        allowed=_PATH_PATTERN,
    )
    budget_records_s: int = parameter(
        0,
        "Records per second that one process may write, over all its call sites; 200 to 500 suits most. A call site is "
        "a registered event, a logger's message (numbers in it aside) or a route of sample_routes; all other paths "
        "together are one. Above the budget the busiest sites are thinned first, by trace id if there is one, and "
        "adjusted_count of each kept record is the number of records it represents. Errors of requests and application "
        "records from WARN on are never thinned. 0 = off.",
        unit="records/s",
        limits=(0, 1_000_000),
    )


MOST_HEADERS = 16
MOST_BODY_FIELDS = 4
MOST_TENANTS = 64
_TENANT = re.compile(r"[^\x00-\x1f\x7f,]{1,120}")
_FIELDS = r"tenant\.id|enduser\.id|gen_ai\.conversation\.id|api_key\.hash|user_agent\.original|server\.address"
_HEADER = re.compile(rf"[0-9A-Za-z_-]{{1,64}}(?::hash)?(?:=(?:{_FIELDS}))?")
_BODY_FIELD = re.compile(r"(?:user|metadata|prompt_cache_key|safety_identifier)(?::hash)?")

Headers = Annotated[
    tuple[Annotated[str, matching(_HEADER)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_HEADERS)),
]
BodyFields = Annotated[
    tuple[Annotated[str, matching(_BODY_FIELD)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_BODY_FIELDS)),
]


Tenants = Annotated[
    tuple[Annotated[str, matching(_TENANT)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_TENANTS)),
]


class IdentityParameters(Parameters):
    """Whose request it is: headers and members of the body that its record gets."""

    record_headers: Headers = parameter(
        (),
        "Request headers to record: x-team as http.request.header.x-team, x-tenant=tenant.id under that name, "
        "authorization:hash=api_key.hash as a keyed hash, which the listener computes with capture_hash_key_file "
        "(without the scheme Bearer). Headers whose names suggest credentials need :hash.",
        allowed=f"at most {MOST_HEADERS} of name, name:hash, name=field or name:hash=field; a field is tenant.id, "
        "enduser.id, gen_ai.conversation.id, api_key.hash, user_agent.original or server.address",
    )
    record_body_fields: BodyFields = parameter(
        (),
        "Members of JSON bodies to record as openai.request.<name>, or with :hash as a keyed hash. They can name "
        "people, so none is recorded by default, nor if the client forbids the capture of texts. They are read from "
        "what capture_head_bytes and capture_tail_bytes keep.",
        allowed="user, metadata, prompt_cache_key, safety_identifier, each once, with or without :hash",
        advanced=True,
    )
    metrics_tenants: Tenants = parameter(
        (),
        "Tenants (tenant.id from a header or the application, not its hash) that "
        "inference_logging_tenant_requests_total and inference_logging_tenant_tokens_total count by name; all others "
        "count as other. A name keeps its place as long as the queue directory exists. Empty = no such metrics.",
        allowed=f"at most {MOST_TENANTS} names of 1 to 120 bytes, without commas and control characters",
        advanced=True,
    )


# A token of RFC 9110; longer names are refused by some servers.
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")


class TraceParameters(Parameters):
    """The origin of a request's ids, and where they are sent."""

    trace_source: Literal["auto", "header"] = parameter(
        "auto",
        "Where trace and span ids come from. auto: OpenTelemetry's active span and asgi-correlation-id's id, if the "
        "application uses them, else the request's headers; header: the headers only.",
        advanced=True,
    )
    response_header: Annotated[str | None, BeforeValidator(none_if_empty), matching(HEADER_NAME)] = parameter(
        None,
        "Response header for the client's request id, or for the one made here if the client sent none, such as "
        "X-Request-Id. The application's own header stays as it is. Empty = off.",
        allowed="a header's name of at most 64 characters, or empty",
    )
    forward_ids: Literal["auto", "on", "off"] = parameter(
        "auto",
        "Whether the application gets the ids made here in headers (traceparent and x-request-id) if the client sent "
        "none. auto: traceparent only, and only for a server whose own tracing is known to be on (vLLM with "
        "--otlp-traces-endpoint), so that its spans are in the same trace as the records.",
    )
