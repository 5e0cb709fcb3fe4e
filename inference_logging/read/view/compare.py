"""Two choices of requests beside each other: their times with intervals, and what else is different about them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from inference_logging.read.stats.histograms import Spans, ratio_of_quantiles
from inference_logging.read.table.table import Table
from inference_logging.read.view.fields import grouped, text_of
from inference_logging.read.view.queries import FILTER, Query, asked
from inference_logging.read.view.workers import GoneError

FIELDS: Final = (
    "duration_s", "gen_ai.response.time_to_first_chunk", "gen_ai.response.time_per_output_token", "engine.queued_s",
    "engine.prefill_s", "engine.decode_s", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
)  # fmt: skip
"""What is compared; the first four with intervals."""
WITH_INTERVAL: Final = FIELDS[:4]
SHARED: Final = (
    "outcome", "http.response.status_code", "error.type", "http.route", "model", "tenant.id",
    "gen_ai.operation.name", "sampled_by", "service.version", "k8s.pod.name",
)  # fmt: skip
"""Fields whose values are counted on both sides."""
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SPANS: Final = 60
_ROWS: Final = 200
_MOST_CHANGED: Final = 30
_LEAST_CHANGE: Final = 0.005


def compare(index: Table, a: Query, b: Query, given_up: threading.Event) -> dict[str, Any]:
    """Return both sides, the ratios b ÷ a, and what has changed. Raises ``QueryError``, ``GoneError``."""
    sides = [_side(index, query, given_up) for query in (a, b)]
    found: dict[str, Any] = {"a": sides[0], "b": sides[1], "fields": {}}
    for field in FIELDS:
        of = [side["fields"].get(field) for side in sides]
        if all(one is not None and one["count"] for one in of):
            spans = [_spans(index, query, field, given_up) for query in (a, b)] if field in WITH_INTERVAL else None
            found["fields"][field] = _ratios(of[0], of[1], spans)
    found["changed"] = _changed(index, (a, b), [sum(side["weighted"]) for side in sides], given_up)
    return found


def _side(index: Table, query: Query, given_up: threading.Event) -> dict[str, Any]:
    wanted = {"events": ["request"], **query, "fields": list(FIELDS)}
    side: dict[str, Any] = _ask(index.aggregate, wanted, given_up)
    return side


def _spans(index: Table, query: Query, field: str, given_up: threading.Event) -> Spans:
    wanted = {"events": ["request"], **query, "buckets": _SPANS, "heatmap": field, "heatmap_rows": _ROWS}
    wanted.pop("group_by", None)
    found = _ask(index.aggregate, {**wanted, "fields": [field]}, given_up).get("heatmap") or {}
    # A value of 0 is in the lowest row, which begins above it.
    spans = zip(found.get("cells", []), found.get("zeros", []), strict=True)
    return Spans(found.get("edges", []), [[zeros + cells[0], *cells[1:]] for cells, zeros in spans])


def _ratios(a: Mapping[str, Any], b: Mapping[str, Any], spans: Sequence[Spans] | None) -> dict[str, Any]:
    """Return b ÷ a of each quantile and of the mean, with intervals where there are spans enough for them."""
    names = [*_QUANTILES, "mean"]
    ratios: dict[str, Any] = {f"ratio_{name}": b[name] / a[name] if a.get(name) else None for name in names}
    intervals = ratio_of_quantiles(spans[1], spans[0], list(_QUANTILES.values())) if spans is not None else None
    for at, name in enumerate(_QUANTILES):
        interval = intervals[at] if intervals is not None else None
        ratios[f"interval_{name}"] = [interval.low, interval.high] if interval is not None else None
    ratios["interval"] = ratios["interval_p50"]
    ratios["counts"] = [a.get("count"), b.get("count")]
    return ratios


def _changed(
    index: Table, queries: Sequence[Query], totals: Sequence[float], given_up: threading.Event
) -> list[dict[str, Any]]:
    """Return the values whose shares differ most, the largest difference first."""
    found = []
    for field in SHARED:
        sides = zip(queries, totals, strict=True)
        shares = [_shares(index, query, field, total, given_up) for query, total in sides]
        for value in {**shares[0], **shares[1]}:
            share_a, share_b = (share.get(value, 0.0) for share in shares)
            if abs(share_b - share_a) >= _LEAST_CHANGE:
                found.append({"field": field, "value": value, "share_a": share_a, "share_b": share_b})
    found.sort(key=lambda one: -abs(one["share_b"] - one["share_a"]))
    return found[:_MOST_CHANGED]


def _shares(index: Table, query: Query, field: str, total: float, given_up: threading.Event) -> dict[Any, float]:
    """Return the share of each value among all requests; null stands for those without one."""
    kept = {name: one for name, one in query.items() if name in FILTER}
    wanted = {"events": ["request"], **kept, "group_by": field, "buckets": 1, "fields": []}
    groups = _ask(partial(grouped, index), wanted, given_up)["groups"]
    return {_name(one["value"]): sum(one["weighted"]) / total for one in groups if one.get("rest") != "more"}


def _name(value: Any) -> Any:
    return text_of(value) if isinstance(value, list | dict) else value


def _ask(ask: Any, query: Query, given_up: threading.Event) -> Any:
    if given_up.is_set():
        raise GoneError
    return asked(ask, query)
