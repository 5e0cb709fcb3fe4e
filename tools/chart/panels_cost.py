"""The dashboard's panels of what logging costs: processor and bytes, of the pods and of their nodes."""

from __future__ import annotations

from typing import Final

from tools.chart.expressions import Panel, Query, once, rates, total

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
