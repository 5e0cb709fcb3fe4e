"""Which records are kept."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import (
    Networks,
    Parameters,
    PathPatterns,
    Ratio,
    RouteRatios,
    parameter,
    upper,
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
