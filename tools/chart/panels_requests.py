"""The dashboard's panels of all requests over HTTP by route, and of the engine behind the server."""

from __future__ import annotations

from typing import Final

from tools.chart.expressions import (
    ENGINE_DECODE,
    ENGINE_PREFILL,
    ENGINE_QUEUE,
    RECORDED,
    ROUTE,
    STATUS,
    Panel,
    Query,
    named,
    once,
    quantile,
    quantile_by_route,
    served,
)

FAILED: Final = f'{STATUS}=~"5.."'
OF_ENGINE: Final = "From the last engine.stats record of each engine; nothing where it is older than a minute."

ROUTES = [
    Panel(
        "Requests by route",
        "All requests over HTTP in a second, by the template of the route that was taken. (none): no route was taken, "
        "as for a path that does not exist. The choice of models and operations does not count in this row.",
        "reqps",
        (Query(named(served(ROUTE), ROUTE), f"{{{{{ROUTE}}}}}"),),
        "stack",
        12,
    ),
    Panel(
        "Duration by route",
        f"95 % of the requests of a route took no longer than this. {RECORDED}",
        "s",
        (Query(quantile_by_route(0.95), f"{{{{{ROUTE}}}}}"),),
        "log",
        12,
        traces=True,
    ),
    Panel(
        "Failed requests by route",
        "Share of the requests of a route whose answer has a status from 500 on. Alert: InferenceLoggingRouteFails.",
        "percentunit",
        (Query(f"{named(served(ROUTE, FAILED), ROUTE)} / {named(served(ROUTE), ROUTE)}", f"{{{{{ROUTE}}}}}"),),
        "lines",
        12,
    ),
    Panel(
        "Requests by status",
        "All requests over HTTP in a second, by the status of the answer. (none): there was no answer, since the "
        "client went away or the process died before.",
        "reqps",
        (Query(named(served(STATUS), STATUS), f"{{{{{STATUS}}}}}"),),
        "stack",
        12,
    ),
]

ENGINE = [
    Panel(
        "Requests in the engine",
        f"Requests that the engine works on, and those that wait in its queue. {OF_ENGINE}",
        "short",
        (
            Query(once("inference_logging_engine_requests_running", ("engine",)), "running {{pod}}/{{engine}}"),
            Query(once("inference_logging_engine_requests_waiting", ("engine",)), "waiting {{pod}}/{{engine}}"),
        ),
        width=6,
    ),
    Panel(
        "KV cache of the engine",
        "Used share of the cache for keys and values. Near 1 the engine preempts requests, and others wait. "
        f"{OF_ENGINE}",
        "percentunit",
        (Query(once("inference_logging_engine_kv_cache_usage_ratio", ("engine",)), "{{pod}}/{{engine}}"),),
        "share",
        6,
    ),
    Panel(
        "Time in the engine's queue",
        f"How long requests for inference that went well waited in the engine before it began with them. {RECORDED}",
        "s",
        tuple(Query(quantile(one / 100, ENGINE_QUEUE), f"p{one}") for one in (50, 95, 99)),
        "log",
        6,
    ),
    Panel(
        "Prefill and decoding",
        "How long the engine worked at most on the prompt, and on the answer, of 95 % of the requests that went well. "
        f"{RECORDED}",
        "s",
        (Query(quantile(0.95, ENGINE_PREFILL), "prefill"), Query(quantile(0.95, ENGINE_DECODE), "decoding")),
        "log",
        6,
    ),
]
