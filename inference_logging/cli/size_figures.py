"""The figures of a fleet's logging: from what a request takes to what pods, nodes, destinations and a month take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from inference_logging.config import Config
    from inference_logging.shipping.line import Stored
    from inference_logging.sizing import Measured, PerRequest

DAY_S: Final = 86_400
_MONTH_S: Final = 30 * DAY_S
_GB: Final = 1e9
INDEXES: Final = {
    "clickhouse": "clickhouse+https://user@host/database",
    "opensearch": "opensearch+https://host:9200/index",
    "elasticsearch": "elasticsearch+https://host:9200/index",
}
"""Kinds whose server is asked what it keeps, and how one is named."""
_TIMES: Final = ("queue_lasts_s", "kept_s")


class Fleet(NamedTuple):
    """Pods, serving processes in each, requests per second of a pod, seconds that segments are kept.

    ``pods_per_node``: None if nothing is asked of a node; ``kept_there_s``: seconds that a destination keeps them,
    None: as its table says, else a month.
    """

    pods: int
    processes: int
    requests_s: float
    keep_s: float
    pods_per_node: int | None = None
    kept_there_s: float | None = None


class Prices(NamedTuple):
    """Money for a GB of disk in a month, a GB that leaves a pod, a core in a month, a GB of object storage in one."""

    disk: float
    network: float
    core: float
    storage: float = 0.0


def computed(
    config: Config, measured: Measured, fleet: Fleet, prices: Prices, stored: Mapping[str, Stored] | None = None
) -> dict[str, Any]:
    """Return all figures: of a request, a pod, a node if asked for, the fleet; of each destination; money per month.

    ``stored``: what servers have of records, by kind.
    """
    recorded_s = fleet.requests_s * config.sample_ratio
    on_disk = recorded_s * (measured.compressed_bytes if config.compress == "zstd" else measured.segment_bytes)
    # Above the quota the oldest segments are removed, however young they are.
    kept_s = min(fleet.keep_s, config.quota_bytes / on_disk) if config.quota_bytes else fleet.keep_s
    queues = fleet.processes * config.queue_bytes
    pod = {
        "queue_bytes": queues,
        "queue_lasts_s": queues * config.overflow_info_ratio / (recorded_s * measured.queue_bytes),
        "written_bytes_s": recorded_s * measured.segment_bytes,
        "kept_s": kept_s,
        "disk_bytes": kept_s * on_disk,
        "listener_cores": recorded_s * measured.listener_cpu_s,
    }
    total = _times(pod, fleet.pods)
    money = {
        "disk": total["disk_bytes"] / _GB * prices.disk,
        "listener": total["listener_cores"] * prices.core,
    }
    shipping = {
        kind: _shipping(of_kind, (stored or {}).get(kind), measured.records, recorded_s, fleet, prices)
        for kind, of_kind in measured.shipped.items()
    }
    request = {name: value for name, value in measured._asdict().items() if name != "shipped"}
    node = {} if fleet.pods_per_node is None else {"node": _times(pod, fleet.pods_per_node)}
    return {
        "request": request,
        "pod": pod,
        **node,
        "fleet": total,
        "money_month": {**money, "total": sum(money.values())},
        "shipping": shipping,
    }


def _times(pod: dict[str, float], pods: int) -> dict[str, float]:
    """Return the same of many pods; times are those of each."""
    return {name: value if name in _TIMES else value * pods for name, value in pod.items()}


def _shipping(
    of_kind: PerRequest, index: Stored | None, records: float, recorded_s: float, fleet: Fleet, prices: Prices
) -> dict[str, Any]:
    """Return the figures of one destination: bytes over the network, kept there, cores of the shippers, and money.

    ``index``: what its server has, of which a request makes ``records``.
    """
    fleet_s = recorded_s * fleet.pods
    cores = fleet_s * of_kind.shipper_cpu_s
    request_bytes, kept_s, price = of_kind.stored_bytes, fleet.kept_there_s or _MONTH_S, prices.storage
    if index is not None:
        request_bytes = records * index.copies * index.bytes / index.records
        kept_s, price = fleet.kept_there_s or index.kept_s or _MONTH_S, prices.disk
    stored = None if request_bytes is None else fleet_s * kept_s * request_bytes
    money = {
        "network": fleet_s * _MONTH_S * of_kind.sent_bytes / _GB * prices.network,
        "shipper": cores * prices.core,
        "storage": (stored or 0.0) / _GB * price,
    }
    node = {} if fleet.pods_per_node is None else {
        "node_bytes_s": recorded_s * fleet.pods_per_node * of_kind.sent_bytes,
        "node_cores": recorded_s * fleet.pods_per_node * of_kind.shipper_cpu_s,
    }  # fmt: skip
    return {
        "request_bytes": of_kind.sent_bytes,
        "request_cpu_s": of_kind.shipper_cpu_s,
        "pod_bytes_s": recorded_s * of_kind.sent_bytes,
        **node,
        "fleet_bytes_s": fleet_s * of_kind.sent_bytes,
        "fleet_cores": cores,
        "stored_bytes": stored,
        "kept_s": None if stored is None else kept_s,
        **({} if index is None else {"index": index._asdict()}),
        "money_month": {**money, "total": sum(money.values())},
    }
