"""Ready-made questions of `query --example`: one SELECT each, over the columns that `requests` always has.

Each is written once, for two engines: DuckDB, over segments, and ClickHouse, over the views that `ship` makes there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from inference_logging.read.segments.columns import FAILED, MODEL, NONE


class Question(NamedTuple):
    """What it answers, and how."""

    summary: str
    sql: str
    clickhouse: str


class _Dialect(NamedTuple):
    """How an engine says what the other says otherwise."""

    quantile: Callable[[str, float], str]
    """The least of the source's values up to which this share of the weights lies."""
    source: Callable[..., str]
    """`requests` for groups by an expression, with the quantiles' values by name."""
    sum_if: Callable[[str, str], str]
    """0 if no row meets the condition."""
    hour: Callable[[str], str]


_WEIGHT: Final = "coalesce(adjusted_count, 1)"


_MODELS: Final = ", ".join(map(json.dumps, MODEL))
# Not `*`: the table of records answers for columns that are named.
_GROUPED: Final = f"""timestamp, outcome, adjusted_count, "http.route", "tenant.id", "enduser.id",
        {_MODELS},
        "k8s.pod.name", "k8s.node.name", "host.name\""""


def _weighed(by: str, **values: str) -> str:
    """Return `requests` with each value, the weights up to it, and those of all: DuckDB has no weighted quantiles."""
    windows = "".join(
        f",\n    sum({_WEIGHT}) FILTER ({name} IS NOT NULL)\n      OVER (PARTITION BY {by}{order}) AS {name}_{suffix}"
        for name in values
        for suffix, order in (("upto", f" ORDER BY {name}"), ("of", ""))
    )
    return f"(\n  SELECT *{windows}\n  FROM {_named(by, **values)}\n)"


def _named(_by: str, **values: str) -> str:
    columns = "".join(f",\n        {value} AS {name}" for name, value in values.items())
    return f"(\n    SELECT {_GROUPED}{columns}\n    FROM requests\n  )"


_DUCKDB: Final = _Dialect(
    quantile=lambda name, level: f"min({name}) FILTER ({name}_upto >= {level} * {name}_of)",
    source=_weighed,
    sum_if=lambda value, condition: f"coalesce(sum({value}) FILTER ({condition}), 0)",
    hour=lambda time: f"time_bucket(INTERVAL '1 hour', {time})",
)
_CLICKHOUSE: Final = _Dialect(
    # Its weights are whole numbers.
    quantile=lambda name, level: f"quantileExactWeightedOrNull({level})({name}, toUInt64(round(1000 * {_WEIGHT})))",
    source=_named,
    sum_if=lambda value, condition: f"sumIf({value}, {condition})",
    hour=lambda time: f"toStartOfHour(toDateTime({time}, 'UTC'))",
)

_NEAREST: Final = f"""coalesce("tenant.id", "enduser.id", '{NONE}')"""
_MODEL: Final = f"coalesce({_MODELS}, '{NONE}')"
_POD: Final = f"""coalesce("k8s.pod.name", "host.name", '{NONE}')"""
_ROUTE: Final = f"""coalesce("http.route", '{NONE}')"""
_ABORTED: Final = "outcome = 'client_disconnect'"
_DURATION: Final = {"duration_": "duration_s"}
_QUEUED: Final = {"queued_": '"engine.queued_s"'}
_TIMES: Final = {**_DURATION, "first_chunk_": '"gen_ai.response.time_to_first_chunk"', **_QUEUED}
_ABORTS: Final = {
    "aborted_after_": f"CASE WHEN {_ABORTED} THEN duration_s END",
    "tokens_then_": f'CASE WHEN {_ABORTED} THEN "gen_ai.usage.output_tokens" END',
}


def _question(summary: str, sql: Callable[[_Dialect], str]) -> Question:
    return Question(summary, sql(_DUCKDB).strip(), sql(_CLICKHOUSE).strip())


QUESTIONS: Final[dict[str, Question]] = {
    "slow-tenants": _question(
        "Tenants by the 99th percentile of their requests' duration, with time to first chunk and the engine's queue.",
        lambda of: (
            f"""
SELECT {_NEAREST} AS tenant, round(sum({_WEIGHT})) AS requests,
       {of.quantile("duration_", 0.99)} AS p99_s,
       {of.quantile("duration_", 0.5)} AS p50_s,
       {of.quantile("first_chunk_", 0.99)} AS first_chunk_p99_s,
       {of.quantile("queued_", 0.99)} AS queued_p99_s
FROM {of.source(_NEAREST, **_TIMES)}
GROUP BY tenant
ORDER BY p99_s DESC NULLS LAST LIMIT 20"""
        ),
    ),
    "tokens-by-tenant": _question(
        "Input, output and cached tokens of each tenant.",
        lambda _: (
            f"""
SELECT {_NEAREST} AS tenant, round(sum({_WEIGHT})) AS requests,
       round(sum("gen_ai.usage.input_tokens" * {_WEIGHT})) AS input_tokens,
       round(sum("gen_ai.usage.output_tokens" * {_WEIGHT})) AS output_tokens,
       round(sum("gen_ai.usage.cache_read.input_tokens" * {_WEIGHT})) AS cached_tokens
FROM requests
GROUP BY tenant
ORDER BY input_tokens DESC NULLS LAST"""
        ),
    ),
    "abort-rate-by-route": _question(
        "Share of requests whose client left, by route, and after how long.",
        lambda of: (
            f"""
SELECT {_ROUTE} AS route, round(sum({_WEIGHT})) AS requests,
       {of.sum_if(_WEIGHT, _ABORTED)} / sum({_WEIGHT}) AS abort_rate,
       {of.quantile("aborted_after_", 0.5)} AS aborted_after_s,
       {of.quantile("tokens_then_", 0.5)} AS output_tokens_then
FROM {of.source(_ROUTE, **_ABORTS)}
GROUP BY route
ORDER BY abort_rate DESC NULLS LAST, requests DESC"""
        ),
    ),
    "errors-by-model": _question(
        "Requests that failed or whose client left, by model, outcome, status and error.",
        lambda _: (
            f"""
SELECT {_MODEL} AS model, outcome, "http.response.status_code" AS status,
       coalesce("error.type", "exception.type") AS error, round(sum({_WEIGHT})) AS requests, max(timestamp) AS last
FROM requests
WHERE outcome <> 'ok'
GROUP BY ALL
ORDER BY requests DESC"""
        ),
    ),
    "slowest-requests": _question(
        "The ten longest requests, with tenant, pod, model and where the time went.",
        lambda _: (
            f"""
SELECT timestamp, {_NEAREST} AS tenant, {_POD} AS pod,
       {_MODEL} AS model, outcome, duration_s,
       "gen_ai.response.time_to_first_chunk" AS first_chunk_s, "engine.queued_s" AS queued_s,
       "gen_ai.usage.output_tokens" AS output_tokens, request_id
FROM requests
ORDER BY duration_s DESC NULLS LAST LIMIT 10"""
        ),
    ),
    "slowest-pods": _question(
        "Pods by the 99th percentile of duration, with failures and the engine's queue.",
        lambda of: (
            f"""
SELECT {_POD} AS pod, "k8s.node.name" AS node, round(sum({_WEIGHT})) AS requests,
       {of.quantile("duration_", 0.99)} AS p99_s,
       {of.quantile("queued_", 0.99)} AS queued_p99_s,
       {of.sum_if(_WEIGHT, FAILED)} / sum({_WEIGHT}) AS failure_rate
FROM {of.source(_POD + ', "k8s.node.name"', **_DURATION, **_QUEUED)}
GROUP BY pod, node
ORDER BY p99_s DESC NULLS LAST LIMIT 20"""
        ),
    ),
    "cache-hit-by-prefix": _question(
        "Share of input tokens from the prefix cache, by prompt_cache_key, else conversation, else model and route.",
        lambda _: (
            f"""
SELECT coalesce("openai.request.prompt_cache_key", "gen_ai.conversation.id",
                {_MODEL} || ' ' || {_ROUTE}) AS prefix,
       round(sum({_WEIGHT})) AS requests, round(sum("gen_ai.usage.input_tokens" * {_WEIGHT})) AS input_tokens,
       sum("gen_ai.usage.cache_read.input_tokens" * {_WEIGHT})
         / sum("gen_ai.usage.input_tokens" * {_WEIGHT}) AS hit_rate
FROM requests
WHERE "gen_ai.usage.input_tokens" > 0
GROUP BY prefix
ORDER BY input_tokens DESC LIMIT 50"""
        ),
    ),
    "models-over-time": _question(
        "Requests, failures and median duration of each model, by hour.",
        lambda of: (
            f"""
SELECT {of.hour("timestamp")} AS hour, {_MODEL} AS model,
       round(sum({_WEIGHT})) AS requests,
       round({of.sum_if(_WEIGHT, FAILED)}) AS failed,
       {of.quantile("duration_", 0.5)} AS p50_s
FROM {of.source(of.hour("timestamp") + ", " + _MODEL, **_DURATION)}
GROUP BY hour, model
ORDER BY hour, requests DESC"""
        ),
    ),
    "killed-in-flight": _question(
        "Requests whose process died: how far each had come.",
        lambda _: (
            f"""
SELECT timestamp, {_POD} AS pod, pid,
       {_MODEL} AS model, duration_s, chunks,
       "http.response.body.size" AS bytes_sent, request_id
FROM requests
WHERE outcome = 'process_died'
ORDER BY timestamp"""
        ),
    ),
}
