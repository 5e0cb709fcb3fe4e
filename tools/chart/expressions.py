"""The expressions of the dashboard's panels: everything once for each pod, however often it is scraped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_logging.read.segments.columns import NONE

MODEL, OPERATION, ROUTE = "gen_ai_request_model", "gen_ai_operation_name", "http_route"
CHOSEN: Final = 'namespace=~"$namespace",service=~"$service",pod=~"$pod"'
CHOSEN_REQUESTS: Final = f'{MODEL}=~"$model",{OPERATION}=~"$operation"'
CHOSEN_ROUTES: Final = f'{ROUTE}=~"$route"'
DURATION = "gen_ai_server_request_duration_seconds"
FIRST_CHUNK = "gen_ai_server_time_to_first_chunk_seconds"
PER_CHUNK = "gen_ai_server_time_per_chunk_seconds"
PER_TOKEN = "gen_ai_server_time_per_output_token_seconds"
ENGINE_QUEUE = "inference_logging_engine_queue_time_seconds"
ENGINE_PREFILL = "inference_logging_engine_prefill_time_seconds"
ENGINE_DECODE = "inference_logging_engine_decode_time_seconds"
SERVED = "http_server_request_duration_seconds"
STATUS = "http_response_status_code"
REQUESTS = f"{DURATION}_count"
LABELS: Final = {
    REQUESTS: (OPERATION, MODEL, "error_type"),
    f"{DURATION}_bucket": (OPERATION, MODEL, "error_type", "le"),
    f"{SERVED}_count": (ROUTE, "http_request_method", STATUS),
}
"""The labels of a series, where a call below does not name them."""


@dataclass(frozen=True)
class Query:
    """One expression, and the legend of its series."""

    expr: str
    legend: str
    exemplar: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel: its form, and what it asks for."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    form: str = "lines"
    """lines, log (lines over a log axis), stack, bars, share (0 to 1), stat, heatmap or states."""
    width: int = 8
    steps: tuple[tuple[str, float | None], ...] = ()
    """Thresholds: a colour and the value from which on it counts."""
    traces: bool = False
    """Whether its series lead to the traces of the time that is looked at."""


def once(name: str, labels: tuple[str, ...] = (), also: str = "", function: str = "") -> str:
    """Return a series, once for each pod, though it can be scraped at server and listener."""
    selected = f"{name}{{{','.join(filter(None, (CHOSEN, also)))}}}"
    inner = f"{function}({selected}[$__rate_interval])" if function else selected
    return f"max by ({', '.join(('namespace', 'pod', *labels))}) ({inner})"


def since(name: str) -> str:
    """Return the time from what a gauge says to the scrape that brought it."""
    selected = f"{name}{{{CHOSEN}}}"
    return f"max by (namespace, pod) (timestamp({selected}) - {selected})"


def total(by: str, inner: str) -> str:
    """Return a sum over pods and other labels."""
    return f"sum by ({by}) ({inner})" if by else f"sum ({inner})"


def rates(name: str, labels: tuple[str, ...] = (), by: str = "", also: str = "") -> str:
    """Return what a counter grows by in a second."""
    return total(by, once(name, labels, also, "rate"))


def grown(name: str, labels: tuple[str, ...] = (), by: str = "") -> str:
    """Return what a counter grows by in an interval."""
    return total(by, once(name, labels, "", "increase"))


def requests(by: str = "", also: str = "") -> str:
    """Return the chosen inference requests in a second."""
    return rates(REQUESTS, LABELS[REQUESTS], by, ",".join(filter(None, (CHOSEN_REQUESTS, also))))


def tokens(by: str) -> str:
    """Return the tokens of the chosen requests in a second."""
    return rates("inference_logging_tokens_total", (OPERATION, MODEL, "gen_ai_token_type"), by, CHOSEN_REQUESTS)


def served(by: str = "", also: str = "") -> str:
    """Return the requests over HTTP in a second, of the chosen routes."""
    series = f"{SERVED}_count"
    return rates(series, LABELS[series], by, ",".join(filter(None, (CHOSEN_ROUTES, also))))


def named(inner: str, label: str = MODEL) -> str:
    """Return it with a name for what has no model, such as a request that was refused unread, or no route."""
    return f'label_replace({inner}, "{label}", "{NONE}", "{label}", "")'


def recorded(name: str) -> str:
    """Return the name under which the chart's rules record the buckets of a histogram."""
    return f"inference_logging:{name}_bucket:rate2m"


def quantile(quantile: float, histogram: str, by: str = "") -> str:
    """Return a quantile of the chosen requests, from what the rules recorded."""
    found = once(recorded(histogram), (OPERATION, MODEL, "le"), CHOSEN_REQUESTS)
    return f"histogram_quantile({quantile}, {total(', '.join(filter(None, ('le', by))), found)})"


def quantiles(histogram: str, *chosen: int) -> tuple[Query, ...]:
    """Return queries of percentiles."""
    return tuple(Query(quantile(one / 100, histogram), f"p{one}") for one in chosen)


def by_model_and_operation(histogram: str) -> tuple[Query, ...]:
    """Return a query of the 95th percentile of each model and operation."""
    return (Query(named(quantile(0.95, histogram, f"{MODEL}, {OPERATION}")), f"{{{{{MODEL}}}}} {{{{{OPERATION}}}}}"),)


def quantile_by_route(quantile: float) -> str:
    """Return a quantile of the time that requests of each chosen route take, from what the rules recorded."""
    found = total(f"le, {ROUTE}", once(recorded(SERVED), (ROUTE, "le"), CHOSEN_ROUTES))
    return named(f"histogram_quantile({quantile}, {found})", ROUTE)


def heat(histogram: str, labels: tuple[str, ...], also: str = CHOSEN_REQUESTS, exemplar: bool = True) -> tuple[Query]:
    """Return a query of the buckets of a histogram, with the exemplars of its requests."""
    return (Query(rates(f"{histogram}_bucket", labels, "le", also), "{{le}}", exemplar),)


def gauge(name: str, *labels: str, legend: str = "{{namespace}}/{{pod}}") -> Query:
    """Return a query of a gauge of each pod."""
    return Query(once(name, labels), legend)


RECORDED: Final = "The chart's recording rules compute it over 2 minutes."
