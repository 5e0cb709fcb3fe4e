"""The metric families, from the counters that the native core publishes: names, help texts, units, labels.

Names follow Prometheus's rules (base units, ``_total``), the histograms of inference OpenTelemetry's GenAI conventions
1.41. What the client got are chunks, not tokens, and the names say so.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from inference_logging.health import STATES

PREFIX = "inference_logging"

_OTHER = "_OTHER"
"""What has no name of its own."""

_HISTOGRAMS = {
    "gen_ai_server_request_duration_seconds": "Time from the beginning of an inference request to its end",
    "gen_ai_server_time_to_first_chunk_seconds": "Time from the beginning of a successful streamed request to its "
    "first chunk (a chunk is a piece of the body, which can hold several tokens)",
    "gen_ai_server_time_per_chunk_seconds": "Mean time between the chunks of a successful streamed request, after the "
    "first (one observation for each request; a chunk is not a token)",
}


def counters(totals: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield what the processes have counted, those that ended included."""
    yield _counter("records_accepted", "Records that were put into a queue", totals["accepted"])
    dropped = CounterMetricFamily(
        f"{PREFIX}_records_dropped",
        "Records that were refused or lost; those of shutdown_deadline stay in the queue directory, and the next "
        "listener writes them",
        labels=["reason", "level"],
    )
    for reason, levels in totals["dropped"].items():
        for level, count in levels.items():
            dropped.add_metric([reason, level], count)
    yield dropped
    sampled_out = CounterMetricFamily(
        f"{PREFIX}_records_sampled_out", "Records that sampling left out on purpose", labels=["reason"]
    )
    for reason, count in totals["sampled_out"].items():
        sampled_out.add_metric([reason], count)
    yield sampled_out
    yield _counter(
        "in_flight_slots_missed",
        "Requests that began while every slot of the flight recorder was taken: recorded at their end only",
        totals["in_flight_missed"],
    )
    yield _counter("producer_deaths", "Processes that died without closing their queue", totals["producer_deaths"])
    yield _counter(
        "hot_path_seconds",
        "Time that requests spent inside of this library, estimated from every 64th request",
        totals["hot_path_s"],
        "seconds",
    )


def queues(all_queues: Sequence[Mapping[str, Any]], now_unix_s: float) -> Iterator[Metric]:
    """Yield how full the queues of all processes are together."""
    oldest = [queue["oldest_unix_nano"] for queue in all_queues if queue["oldest_unix_nano"] is not None]
    age_s = max(0.0, now_unix_s - min(oldest) / 1e9) if oldest else 0.0
    yield _gauge("queues", "Queues of the queue directory: one for each process that logs", len(all_queues))
    yield _gauge("queue_records", "Records that wait in queues", _sum(all_queues, "in_queue"))
    yield _gauge("queue_bytes", "Bytes of queues that are in use", _sum(all_queues, "used_bytes"), "bytes")
    yield _gauge("queue_capacity_bytes", "Bytes that queues have", _sum(all_queues, "capacity_bytes"), "bytes")
    fill = max((queue["used_bytes"] / queue["capacity_bytes"] for queue in all_queues), default=0.0)
    yield _gauge("queue_fill_ratio", "Share of its bytes that the fullest queue uses", fill, "ratio")
    yield _gauge(
        "requests_in_flight",
        "Requests in flight that have a slot of the flight recorder",
        _sum(all_queues, "in_flight"),
    )
    yield _gauge("queue_oldest_age_seconds", "Age of the oldest record that waits; 0: none waits", age_s, "seconds")


def sinks(all_sinks: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield what each sink took, refused and needed."""
    label = ["sink"]
    written = CounterMetricFamily(f"{PREFIX}_records_written", "Records that a sink took", labels=label)
    size = CounterMetricFamily(f"{PREFIX}_bytes_written", "Bytes that a sink took", labels=label)
    dropped = CounterMetricFamily(
        f"{PREFIX}_sink_records_dropped", "Records that an additional sink was too slow for", labels=label
    )
    errors = CounterMetricFamily(f"{PREFIX}_sink_errors", "Failed writes", labels=[*label, "error_type"])
    seconds = HistogramMetricFamily(f"{PREFIX}_write_seconds", "Time of one write", labels=label, unit="seconds")
    for sink in all_sinks:
        name = [sink["name"]]
        written.add_metric(name, sink["records_written"])
        size.add_metric(name, sink["bytes_written"])
        dropped.add_metric(name, sink["records_dropped"])
        for kind, count in sink["errors"].items():
            errors.add_metric([*name, kind], count)
        times = sink["write_seconds"]
        seconds.add_metric(name, [(_bound(bound), count) for bound, count in times["buckets"]], times["sum"])
    yield from (written, size, dropped, errors, seconds)


def listener(stats: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield what the listener says of itself."""
    yield _gauge(
        "fallback_active", "1 while the fallback writes in place of the primary sink", stats["fallback_active"]
    )
    yield _gauge(
        "writer_heartbeat_timestamp_seconds",
        "Unix time of the listener's last round",
        stats["heartbeat_unix_nano"] / 1e9,
        "seconds",
    )
    yield _counter("listener_cpu_seconds", "CPU time of the listeners' threads", stats["listener_cpu_s"], "seconds")
    yield _counter("listener_restarts", "How often a listener failed and began again", stats["restarts"])
    yield _counter("listener_starts", "How often a listener began to serve the queue directory", stats["leaders"])


def books(lanes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Metric:
    """Return what queues gave out less what sinks took, of each lane; of that: stats, totals, and stats once more.

    The two are counted apart, by headers of queues and by the listener, and a batch is taken before it is given out. So
    more is given out than was taken a moment later, or less than a moment before, only where the books are wrong.
    """
    family = GaugeMetricFamily(
        f"{PREFIX}_books_difference_records",
        "Records that left a queue as written and that no sink took; below 0, the other way round; 0: none of either",
        labels=["lane"],
    )
    for lane, (before, totals, after) in lanes.items():
        lost = max(0, totals["written"] - after["taken_from_queues"])
        family.add_metric([lane], lost or min(0, totals["written"] - before["taken_from_queues"]))
    return family


def audit(totals: Mapping[str, Any], stats: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the counts of the audit lane, of all processes."""
    yield _counter("audit_records_accepted", "Audit records that were put into a queue", totals["accepted"])
    yield _counter("audit_records_committed", "Audit records that are on the device", totals["written"])
    yield _counter("audit_commits", "Groups of audit records that one fsync committed", stats["batches_written"])
    yield _counter("audit_sink_errors", "Commits of the audit lane that failed", stats["sink_errors"])
    dropped = CounterMetricFamily(
        f"{PREFIX}_audit_records_dropped", "Audit records that were refused or lost", labels=["reason"]
    )
    for reason, levels in totals["dropped"].items():
        dropped.add_metric([reason], sum(levels.values()))
    yield dropped


def housekeeping(stats: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield what became of sealed segments."""
    for name, key, meaning in [
        ("segments_removed", "segments_removed", "Segments that were removed, for their age or the quota"),
        ("segments_removed_bytes", "removed_bytes", "Bytes of segments that were removed"),
    ]:
        family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=["reason"])
        for reason, count in stats[key].items():
            family.add_metric([reason], count)
        yield family
    for name, key, meaning in [
        ("segments_compressed", "segments_compressed", "Segments that were compressed"),
        ("compression_read_bytes", "compressed_from_bytes", "Bytes of segments before their compression"),
        ("compression_written_bytes", "compressed_to_bytes", "Bytes of segments after their compression"),
        ("housekeeping_errors", "housekeeping_errors", "Segments that could not be removed or compressed"),
    ]:
        yield _counter(name, meaning, stats[key])


def state(now: str) -> Metric:
    """Yield which of the states of health the logging is in: 1 for that one, 0 for the others."""
    family = GaugeMetricFamily(f"{PREFIX}_state", "State of the logging: 1 for the one that it is in", labels=["state"])
    for name in STATES:
        family.add_metric([name], float(name == now))
    return family


def producers_dead(names: Iterable[str]) -> Metric:
    """Yield a 1 for each process that has a name, has died and has not come back."""
    family = GaugeMetricFamily(
        f"{PREFIX}_producer_dead", "1 for each named producer that has died and not come back", labels=["producer"]
    )
    for name in names:
        family.add_metric([name], 1.0)
    return family


def requests(outcomes: Mapping[str, float]) -> Metric:
    """Return how many requests there were, of every kind; what has no name of its own only if there was such."""
    family = CounterMetricFamily(
        f"{PREFIX}_requests",
        "Requests that have ended, also those that are not for inference; one whose record was sampled counts as often "
        "as it stands for",
        labels=["outcome"],
    )
    for outcome, count in outcomes.items():
        if count or outcome != _OTHER:
            family.add_metric([outcome], count)
    return family


def tokens(all_tokens: Iterable[Mapping[str, Any]]) -> Metric:
    """Return what the requests took of tokens, where an answer or an engine told it."""
    family = CounterMetricFamily(
        f"{PREFIX}_tokens",
        "Tokens of requests, as their answers or the engine told them; those of a sampled record count as often as it "
        "stands for, and the model is the one that answered, if the answer names it",
        labels=["gen_ai_token_type", "gen_ai_operation_name", "gen_ai_request_model"],
    )
    for one in all_tokens:
        family.add_metric([one["token_type"], one["operation"], one["model"]], one["tokens"])
    return family


def histograms(all_histograms: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield the histograms over the requests for inference, with exemplars."""
    by_name = sorted(all_histograms, key=lambda histogram: list(_HISTOGRAMS).index(histogram["name"]))
    for name, series in groupby(by_name, key=lambda histogram: str(histogram["name"])):
        labels = ["gen_ai_operation_name", "gen_ai_request_model"]
        if name == next(iter(_HISTOGRAMS)):
            labels.append("error_type")
        family = HistogramMetricFamily(
            name,
            f"{_HISTOGRAMS[name]}; a request whose record was sampled counts as often as it stands for, and the model "
            "is the one that answered, if the answer names it",
            labels=labels,
            unit="seconds",
        )
        for one in series:
            values = [one["operation"], one["model"], one["error_type"]]
            family.add_metric(values[: len(labels)], [_bucket(*bucket) for bucket in one["buckets"]], one["sum"])
        yield family


def node(meminfo: Path) -> Iterator[Metric]:
    """Yield the node's memory, and how much page cache waits for the disk: what all of its services write."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return
    kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
    for field, name, meaning in [
        ("MemTotal", "node_memory_bytes", "Memory of the node"),
        ("Dirty", "node_dirty_bytes", "Page cache of the node that waits to be written to disk"),
        ("Writeback", "node_writeback_bytes", "Page cache of the node that is being written to disk"),
    ]:
        if field in kibibytes:
            yield _gauge(name, meaning, kibibytes[field] * 1024, "bytes")


def build(name: str, version: str) -> Metric:
    """Return what runs here."""
    value = {"version": version, "python_version": platform.python_version()}
    return InfoMetricFamily(name, "The version of this library and of Python", value=value)


def _bound(seconds: float) -> str:
    return "+Inf" if math.isinf(seconds) else repr(seconds)


def _bucket(bound: float, count: float, exemplar: tuple[str, str, float, float] | None) -> Any:
    le = _bound(bound)
    if exemplar is None:
        return le, count
    trace_id, span_id, value, unix_s = exemplar
    return le, count, Exemplar({"trace_id": trace_id, "span_id": span_id}, value, unix_s)


def _counter(name: str, meaning: str, value: float, unit: str = "") -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", meaning, value=value, unit=unit)


def _gauge(name: str, meaning: str, value: float, unit: str = "") -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, value=value, unit=unit)


def _sum(all_queues: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(queue[key] for queue in all_queues)
