"""The dashboard's panels of the logging itself: whether anything is lost, where it waits, and what it costs."""

from __future__ import annotations

from typing import Final

from tools.chart.expressions import (
    CHOSEN,
    RECORDED,
    Panel,
    Query,
    gauge,
    grown,
    heat,
    once,
    rates,
    recorded,
    since,
    total,
)

STATES: Final = " or ".join(
    f'{number} * inference_logging_state{{{CHOSEN},state="{name}"}}'
    for number, name in enumerate(("ok", "pressured", "producer_died", "degraded", "stuck"))
)

LOGGING = [
    Panel(
        "State of the logging",
        "What /health/logging says. Pressured: a queue fills up. Process died: one ended without closing its "
        "queue. Degraded: records are lost or a sink fails. Stuck: nobody takes records "
        "(InferenceLoggingListenerStuck).",
        "none",
        (Query(f"max by (namespace, pod) ({STATES})", "{{namespace}}/{{pod}}"),),
        "states",
    ),
    Panel(
        "Fill of the fullest queue",
        "Used share of the fullest queue of a pod. From 80 % on DEBUG and INFO records are refused, at 100 % all "
        "(InferenceLoggingQueueFilling).",
        "percentunit",
        (gauge("inference_logging_queue_fill_ratio"),),
        "share",
        steps=(("transparent", None), ("yellow", 0.5), ("red", 0.8)),
    ),
    Panel(
        "Age of the oldest record that waits",
        "Usually below a second; grows as fast as the clock while the sink takes nothing "
        "(InferenceLoggingConsumerLag).",
        "s",
        (gauge("inference_logging_queue_oldest_age_seconds"),),
    ),
    Panel(
        "Records that wait",
        "Records in all queues of a pod that are not written yet.",
        "short",
        (gauge("inference_logging_queue_records"),),
    ),
    Panel(
        "Records per second",
        "What applications put into the queues, and what each sink took. A sink below accepted for long lags behind.",
        "si:rec/s",
        (
            Query(rates("inference_logging_records_accepted_total"), "accepted"),
            Query(rates("inference_logging_records_written_total", ("sink",), "sink"), "to {{sink}}"),
        ),
    ),
    Panel(
        "Records dropped",
        "Records that were refused or lost in an interval, by reason; 0 in good order "
        "(InferenceLoggingRecordsDropped). Those of shutdown_deadline wait for the next listener "
        "(InferenceLoggingDrainCutShort).",
        "short",
        (Query(grown("inference_logging_records_dropped_total", ("reason", "level"), "reason"), "{{reason}}"),),
        "bars",
    ),
    Panel(
        "Records left out by sampling",
        "Records in an interval that sampling left out on purpose, by what decided it. They are not lost: the kept "
        "ones count for them.",
        "short",
        (Query(grown("inference_logging_records_sampled_out_total", ("reason",), "reason"), "{{reason}}"),),
        "bars",
    ),
    Panel(
        "Difference of the books",
        "Records that left the queues as written, less those that the sinks took; 0 if every record is accounted for "
        "(InferenceLoggingBooksDoNotBalance).",
        "short",
        (gauge("inference_logging_books_difference_records", "lane", legend="{{namespace}}/{{pod}} {{lane}}"),),
    ),
    Panel(
        "Time inside of the library per request",
        "What logging costs a request: time on the request's own path, measured on every 64th request.",
        "s",
        (
            Query(
                f"{rates('inference_logging_hot_path_seconds_total', (), 'namespace, pod')} / "
                f"{rates('inference_logging_requests_total', ('outcome',), 'namespace, pod')}",
                "{{namespace}}/{{pod}}",
            ),
        ),
    ),
]

SINKS = [
    Panel(
        "Bytes written per second",
        "What the sinks take, by sink. InferenceLoggingBytesPerSecond looks at their sum per pod.",
        "Bps",
        (Query(rates("inference_logging_bytes_written_total", ("sink",), "sink"), "{{sink}}"),),
    ),
    Panel(
        "Time of a write",
        f"How long one write to a sink takes: half of them, and 99 %, no longer than this. {RECORDED}",
        "s",
        tuple(
            Query(
                f"histogram_quantile({one}, "
                + total("le, sink", once(recorded("inference_logging_write_seconds"), ("sink", "le")))
                + ")",
                f"{{{{sink}}}} {name}",
            )
            for one, name in ((0.5, "p50"), (0.99, "p99"))
        ),
        "log",
    ),
    Panel(
        "Time of a write: heat map",
        "How many writes in a second took how long, over all sinks. Two bands are two kinds of writes, or a disk "
        "that stalls.",
        "wps",
        heat("inference_logging_write_seconds", ("sink", "le"), "", exemplar=False),
        "heatmap",
    ),
    Panel(
        "Failed writes",
        "Writes in an interval that a sink refused, by its error. They are tried again, while records wait in the "
        "queue (InferenceLoggingWriteErrors).",
        "short",
        (
            Query(
                grown("inference_logging_sink_errors_total", ("sink", "error_type"), "sink, error_type"),
                "{{sink}} {{error_type}}",
            ),
        ),
        "bars",
    ),
    Panel(
        "Copies dropped",
        "Copies in an interval that an additional sink was too slow or too small for; the primary sink has the records "
        "(InferenceLoggingCopiesDropped).",
        "short",
        (Query(grown("inference_logging_sink_records_dropped_total", ("sink",), "sink"), "{{sink}}"),),
        "bars",
    ),
    Panel(
        "Fallback active",
        "1 while the fallback writes because the primary sink takes nothing (InferenceLoggingFallbackActive).",
        "none",
        (gauge("inference_logging_fallback_active"),),
        "share",
    ),
    Panel(
        "Audit records",
        "Audit records in a second: accepted into the queue, and on the device. Only with audit: on.",
        "si:rec/s",
        (
            Query(rates("inference_logging_audit_records_accepted_total"), "accepted"),
            Query(rates("inference_logging_audit_records_committed_total"), "committed"),
        ),
        width=12,
    ),
    Panel(
        "Audit records lost, commits failed",
        "In an interval: audit records that were refused or lost, by reason (InferenceLoggingAuditRecordsDropped), "
        "and commits that failed (InferenceLoggingAuditCommitErrors). 0 in good order.",
        "short",
        (
            Query(grown("inference_logging_audit_records_dropped_total", ("reason",), "reason"), "{{reason}}"),
            Query(grown("inference_logging_audit_sink_errors_total"), "failed commits"),
        ),
        "bars",
        12,
    ),
]

SEGMENTS = [
    Panel(
        "Segments removed",
        "Segments in an interval that retention removed, by reason. unshipped: no destination has them "
        "(InferenceLoggingUnshippedRemoved).",
        "short",
        (Query(grown("inference_logging_segments_removed_total", ("reason",), "reason"), "{{reason}}"),),
        "bars",
    ),
    Panel(
        "Bytes of removed and compressed segments",
        "Bytes in an interval: of segments that were removed, by reason, and before and after their compression.",
        "bytes",
        (
            Query(
                grown("inference_logging_segments_removed_bytes_total", ("reason",), "reason"), "removed: {{reason}}"
            ),
            Query(grown("inference_logging_compression_read_bytes_total"), "compressed from"),
            Query(grown("inference_logging_compression_written_bytes_total"), "compressed to"),
        ),
    ),
    Panel(
        "Segments compressed, and not looked after",
        "Segments in an interval that were compressed, and those that could be neither removed nor compressed.",
        "short",
        (
            Query(grown("inference_logging_segments_compressed_total"), "compressed"),
            Query(grown("inference_logging_housekeeping_errors_total"), "failed"),
        ),
        "bars",
    ),
    Panel(
        "Age of the oldest record that is not shipped",
        "Age of the oldest record that the destination has not acknowledged; 0: none waits "
        "(InferenceLoggingShipperLag).",
        "s",
        (gauge("inference_logging_ship_lag_seconds", "ship_name", legend="{{namespace}}/{{pod}} {{ship_name}}"),),
    ),
    Panel(
        "Bytes that are not shipped",
        "Bytes of segments that the destination has not acknowledged.",
        "bytes",
        (gauge("inference_logging_ship_lag_bytes", "ship_name", legend="{{namespace}}/{{pod}} {{ship_name}}"),),
    ),
    Panel(
        "Shipped records per second",
        "Records in a second that the destination has acknowledged, by destination. 0 while it is away.",
        "si:rec/s",
        (Query(rates("inference_logging_ship_records_total", ("ship_name",), "ship_name"), "{{ship_name}}"),),
    ),
]

NODE = [
    Panel(
        "CPU of the listener",
        "Cores that the listener's threads use; 0.01 is one hundredth of a core (InferenceLoggingListenerCpu).",
        "none",
        (
            Query(
                once("inference_logging_listener_cpu_seconds_total", (), "", "rate"),
                "{{namespace}}/{{pod}}",
            ),
        ),
    ),
    Panel(
        "Since the listener's last round",
        "What had passed since the last round when the pod was scraped. A listener makes a round at least every "
        "half second; what grows here hangs or is gone.",
        "s",
        (
            Query(
                since("inference_logging_writer_heartbeat_timestamp_seconds"),
                "{{namespace}}/{{pod}}",
            ),
        ),
    ),
    Panel(
        "Starts, failures and deaths",
        "In an interval: listeners that began, listeners that failed and began again, and processes that died "
        "without closing their queue. InferenceLoggingProducerDead names those that do not come back.",
        "short",
        (
            Query(grown("inference_logging_listener_starts_total"), "listener starts"),
            Query(grown("inference_logging_listener_restarts_total"), "listener failures"),
            Query(grown("inference_logging_producer_deaths_total"), "process deaths"),
        ),
        "bars",
    ),
    Panel(
        "Memory of the queues",
        "Used bytes of all queues of a pod, and their size. They count as memory of the server's container.",
        "bytes",
        (
            gauge("inference_logging_queue_bytes", legend="{{namespace}}/{{pod}} used"),
            gauge("inference_logging_queue_capacity_bytes", legend="{{namespace}}/{{pod}} size"),
        ),
    ),
    Panel(
        "Page cache of the node that waits for the disk",
        "Of all services on the pod's node. When it reaches the kernel's limit, every process that writes has to wait.",
        "bytes",
        (
            gauge("inference_logging_node_dirty_bytes", legend="{{namespace}}/{{pod}} dirty"),
            gauge("inference_logging_node_writeback_bytes", legend="{{namespace}}/{{pod}} writeback"),
        ),
    ),
    Panel(
        "Share of the node's memory that is dirty",
        "The same page cache as a share of the node's memory (InferenceLoggingNodeDirtyMemory).",
        "percentunit",
        (
            Query(
                f"{once('inference_logging_node_dirty_bytes')} / {once('inference_logging_node_memory_bytes')}",
                "{{namespace}}/{{pod}}",
            ),
        ),
    ),
]


_CORES: Final = once("inference_logging:cpu_cores:rate5m", ("part",))
_POD_CORES: Final = once("inference_logging:pod_cpu_cores:rate5m")
_WRITTEN: Final = rates("inference_logging_bytes_written_total", ("sink",))
_SHIPPED: Final = rates("inference_logging_ship_bytes_total", ("ship_name",))
_AVERAGED: Final = "The chart's recording rules compute it over 5 minutes."

COST = [
    Panel(
        "CPU of the logging",
        f"Cores that request path, listener and shipper use in all chosen pods together. {_AVERAGED}",
        "none",
        (Query(total("", _CORES), "cores"),),
        "stat",
    ),
    Panel(
        "Share of the pods' CPU",
        "The same as a share of what all containers of these pods use, which cAdvisor measures "
        f"(InferenceLoggingCpuShare looks at each pod). {_AVERAGED}",
        "percentunit",
        (Query(f"{total('', _CORES)} / ({total('', _POD_CORES)} > 0)", "share"),),
        "stat",
        steps=(("green", None), ("yellow", 0.03), ("red", 0.05)),
    ),
    Panel(
        "Bytes of the logging",
        "What all sinks take in a second, and what destinations have acknowledged of it, as it stands in segments.",
        "Bps",
        (Query(_WRITTEN, "written"), Query(_SHIPPED, "shipped")),
        "stat",
    ),
    Panel(
        "CPU of the logging by part",
        "Cores of the request path, of the listener's threads and of the shipper. A shipper of another make needs "
        f"cAdvisor to be seen. {_AVERAGED}",
        "none",
        (Query(total("part", _CORES), "{{part}}"),),
        "stack",
    ),
    Panel(
        "Share of each pod's CPU",
        "What logging uses of the CPU that all containers of a pod use (InferenceLoggingCpuShare). A pod that does "
        f"nothing has a large share of nothing. {_AVERAGED}",
        "percentunit",
        (Query(f"{total('namespace, pod', _CORES)} / ({_POD_CORES} > 0)", "{{namespace}}/{{pod}}"),),
    ),
    Panel(
        "CPU of the node outside of its applications",
        "Share of a node's CPU that is not idle and that no application uses: shippers and listeners, the container "
        "runtime, the kubelet, the kernel (InferenceLoggingNodeOtherCpu). From node_exporter and cAdvisor. "
        f"{_AVERAGED}",
        "percentunit",
        (
            Query(
                f"max by (node) ({once('inference_logging:node_other_cpu_ratio:rate5m', ('node',))})",
                "{{node}}",
            ),
        ),
        steps=(("transparent", None), ("red", 0.1)),
    ),
]
