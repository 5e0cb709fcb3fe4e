"""The dashboard's panels of the service: what an operator asks first."""

from __future__ import annotations

from typing import Final

from tools.chart.expressions import (
    DURATION,
    FIRST_CHUNK,
    LABELS,
    MODEL,
    OPERATION,
    PER_CHUNK,
    PER_TOKEN,
    RECORDED,
    Panel,
    Query,
    by_model_and_operation,
    gauge,
    grown,
    heat,
    named,
    quantiles,
    rates,
    requests,
    tokens,
)

FAILED: Final = 'error_type!~"|client_disconnect|4(0[0-79]|[1-9][0-9])"'
"""As `stats` and `view` count: a 4xx has not failed, but 408, and a client that left has not."""
ANY_ERROR: Final = 'error_type!=""'
EXAMPLES: Final = "The dots are single requests with their trace."

SERVICE = [
    Panel(
        "Requests per second",
        "Inference requests that ended in a second, of the chosen models and operations. Red while none arrives.",
        "reqps",
        (Query(requests(), "requests"),),
        "stat",
        4,
        (("red", None), ("green", 0.001)),
    ),
    Panel(
        "Failed requests",
        "Share of inference requests that failed: an exception, a status of 500 or above, a timeout, a process "
        "that died. Clients that went away are not among them.",
        "percentunit",
        (Query(f"({requests('', FAILED)} or vector(0)) / {requests()}", "failed"),),
        "stat",
        4,
        (("green", None), ("yellow", 0.01), ("red", 0.05)),
    ),
    Panel(
        "Duration of a request",
        f"From the beginning of an inference request to its end, those that failed included. {RECORDED} Yellow from "
        "10 s on, red from 60 s on: set it to what your service promises.",
        "s",
        quantiles(DURATION, 50, 95, 99),
        "stat",
        6,
        (("green", None), ("yellow", 10), ("red", 60)),
    ),
    Panel(
        "Time to the first chunk",
        f"How long the client of a stream waits for its first piece, of streams that went well. {RECORDED} Yellow "
        "from 1 s on, red from 5 s on: set it to what your service promises.",
        "s",
        quantiles(FIRST_CHUNK, 50, 95),
        "stat",
        5,
        (("green", None), ("yellow", 1), ("red", 5)),
    ),
    Panel(
        "Tokens per second",
        "Tokens that answers or the engine report, read and made. Red while there are none.",
        "si:tok/s",
        (Query(tokens("gen_ai_token_type"), "{{gen_ai_token_type}}"),),
        "stat",
        5,
        (("red", None), ("green", 0.001)),
    ),
]

LATENCY = [
    Panel(
        "Duration",
        f"Half, 95 % and 99 % of the inference requests took no longer than this. {RECORDED}",
        "s",
        quantiles(DURATION, 50, 95, 99),
        "log",
        traces=True,
    ),
    Panel(
        "Duration: heat map",
        f"How many inference requests in a second took how long. {EXAMPLES}",
        "reqps",
        heat(DURATION, LABELS[f"{DURATION}_bucket"]),
        "heatmap",
        traces=True,
    ),
    Panel(
        "Duration by model and operation",
        f"95 % of the requests of a model and an operation took no longer than this. {RECORDED}",
        "s",
        by_model_and_operation(DURATION),
        "log",
        traces=True,
    ),
    Panel(
        "First chunk",
        "How long half, 95 % and 99 % of the streams that went well let their client wait at most for the first "
        f"piece. {RECORDED}",
        "s",
        quantiles(FIRST_CHUNK, 50, 95, 99),
        "log",
        traces=True,
    ),
    Panel(
        "First chunk: heat map",
        f"How many streams in a second had their first piece after which time. {EXAMPLES}",
        "reqps",
        heat(FIRST_CHUNK, (OPERATION, MODEL, "le")),
        "heatmap",
        traces=True,
    ),
    Panel(
        "First chunk by model and operation",
        f"95 % of the streams of a model and an operation had their first piece after this time. {RECORDED}",
        "s",
        by_model_and_operation(FIRST_CHUNK),
        "log",
        traces=True,
    ),
    Panel(
        "Time per output token",
        f"Time for each token after the first, of streams that say how many tokens they have. {RECORDED}",
        "s",
        quantiles(PER_TOKEN, 50, 95, 99),
        "log",
    ),
    Panel(
        "Time per chunk",
        "Mean time between the pieces of a stream, after the first. A piece can hold several tokens. "
        f"Grows where an engine is too full. {RECORDED}",
        "s",
        quantiles(PER_CHUNK, 50, 95, 99),
        "log",
    ),
    Panel(
        "Time per output token by model and operation",
        f"95 % of the streams of a model and an operation needed no longer for a token. {RECORDED}",
        "s",
        by_model_and_operation(PER_TOKEN),
        "log",
    ),
]

TRAFFIC = [
    Panel(
        "Requests by model",
        "Inference requests in a second, by the model that answered, or that was asked for.",
        "reqps",
        (Query(named(requests(MODEL)), f"{{{{{MODEL}}}}}"),),
        "stack",
    ),
    Panel(
        "Requests by operation",
        "Inference requests in a second, by the operation that their path stands for: chat, text_completion, "
        "embeddings and so on.",
        "reqps",
        (Query(requests(OPERATION), f"{{{{{OPERATION}}}}}"),),
        "stack",
    ),
    Panel(
        "All requests by outcome",
        "Every request that ended, also those that are not for inference: the choice of models and operations does not "
        "count here.",
        "reqps",
        (Query(rates("inference_logging_requests_total", ("outcome",), "outcome"), "{{outcome}}"),),
        "stack",
    ),
    Panel(
        "Failed requests by reason",
        "Share of inference requests that failed, by the exception, the status or how they ended. "
        "client_disconnect: the client went away.",
        "percentunit",
        (
            Query(
                f"{requests('error_type', ANY_ERROR)} / ignoring (error_type) group_left () {requests()}",
                "{{error_type}}",
            ),
        ),
        "stack",
    ),
    Panel(
        "Tokens by model",
        "Tokens in a second that answers or the engine report, by model and by whether they were read or made.",
        "si:tok/s",
        (
            Query(
                tokens(f"{MODEL}, gen_ai_token_type"),
                f"{{{{{MODEL}}}}} {{{{gen_ai_token_type}}}}",
            ),
        ),
    ),
    Panel(
        "Requests under way",
        "Requests that have begun and not ended. What grows here without more requests per second waits for the "
        "engine. Without a slot: begun while the flight recorder was full, so a killed process leaves no record of "
        "them.",
        "short",
        (
            gauge("inference_logging_requests_in_flight"),
            Query(grown("inference_logging_in_flight_slots_missed_total"), "without a slot"),
        ),
    ),
    Panel(
        "Requests by tenant",
        "Requests in a second that name a tenant; only with metrics_tenants. Tenants that it does not list are other.",
        "reqps",
        (Query(rates("inference_logging_tenant_requests_total", ("tenant", "outcome"), "tenant"), "{{tenant}}"),),
        "stack",
        12,
    ),
    Panel(
        "Tokens by tenant",
        "Tokens in a second of requests that name a tenant, read and made; only with metrics_tenants.",
        "si:tok/s",
        (
            Query(
                rates("inference_logging_tenant_tokens_total", ("tenant", "gen_ai_token_type"), "tenant"), "{{tenant}}"
            ),
        ),
        "stack",
        12,
    ),
]
