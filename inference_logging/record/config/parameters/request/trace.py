"""The origin of a request's ids, and where they are sent."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import Parameters, matching, none_if_empty, parameter

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
