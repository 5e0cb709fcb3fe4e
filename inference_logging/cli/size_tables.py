"""The tables of `inference-logging size`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from inference_logging.cli.size_figures import DAY_S, INDEXES, Fleet
from inference_logging.cli.terminal import table_text

if TYPE_CHECKING:
    from inference_logging.pages.content import Table


def lines(figures: dict[str, Any], fleet: Fleet) -> Iterator[str]:
    """Return the figures that `computed` gives as text: recording, and each destination."""
    yield table_text(_recording(figures, fleet))
    yield f"per month: {_money(figures['money_month'])}"
    if figures["shipping"]:
        yield ""
        yield table_text(_destinations(figures["shipping"], fleet))


def _recording(figures: dict[str, Any], fleet: Fleet) -> Table:
    from inference_logging.pages.content import Table

    request, pod, total = figures["request"], figures["pod"], figures["fleet"]
    node = [figures["node"]] if "node" in figures else []
    many = [pod, *node, total]
    rows = [
        ("queue, in shared memory", _size(request["queue_bytes"]), *(_size(one["queue_bytes"]) for one in many)),
        ("written to segments", _size(request["segment_bytes"]), *(_rate(one["written_bytes_s"]) for one in many)),
        ("the same, by zstd", _size(request["compressed_bytes"]), *("" for _ in many)),
        ("disk", "", *(_size(one["disk_bytes"]) for one in many)),
        ("listener", _us(request["listener_cpu_s"]), *(_cores(one["listener_cores"]) for one in many)),
    ]
    heads = ("", "a request", "a pod", *(f"a node of {fleet.pods_per_node}" for _ in node), f"{fleet.pods:,} pods")
    note = (
        f"Without a listener, a pod's queue takes {_time(pod['queue_lasts_s'])} of this load. "
        f"Segments are kept for {_time(pod['kept_s'])}."
    )
    if pod["kept_s"] < fleet.keep_s:
        note += f" They are above quota_bytes then, and would be removed before {_time(fleet.keep_s)} are over."
    return Table(f"{fleet.requests_s:g} requests/s in each pod", heads, rows, note)


def _destinations(shipping: dict[str, Any], fleet: Fleet) -> Table:
    from inference_logging.pages.content import Table

    rows = [
        (
            kind,
            _size(of_kind["request_bytes"]),
            _rate(of_kind["pod_bytes_s"]),
            *([_rate(of_kind["node_bytes_s"])] if "node_bytes_s" in of_kind else []),
            _rate(of_kind["fleet_bytes_s"]),
            _us(of_kind["request_cpu_s"]),
            _cores(of_kind["fleet_cores"]),
            "" if of_kind["stored_bytes"] is None else _size(of_kind["stored_bytes"]),
            _money(of_kind["money_month"]),
        )
        for kind, of_kind in shipping.items()
    ]
    node = [] if fleet.pods_per_node is None else [f"a node of {fleet.pods_per_node}"]
    pods = f"{fleet.pods:,} pods"
    heads = ("shipped to", "a request", "a pod", *node, pods, "shipper", pods, "kept there", "per month")
    kinds: dict[str, list[str]] = {}
    for kind, of_kind in shipping.items():
        kinds.setdefault(_keeping(kind, of_kind), []).append(kind)
    note = "\n".join(f"{', '.join(kinds[text])}: {text}" for text in kinds)
    return Table("Shipping, compressed as each destination takes it, without TLS", heads, rows, note)


def _keeping(kind: str, of_kind: dict[str, Any]) -> str:
    """Return what is kept there, or why that is not known."""
    if "index" in of_kind:
        records, bytes_, copies, _ = of_kind["index"].values()
        mean = f"{bytes_ / records:,.0f} B is the mean of its {records:,} records, times {copies:g} for copies"
        return f"kept for {_time(of_kind['kept_s'])}; {mean}."
    if of_kind["stored_bytes"] is not None:
        return f"kept for {_time(of_kind['kept_s'])}."
    if kind in INDEXES:
        return f"its server was not asked what it keeps; name one that has records: --to {INDEXES[kind]}."
    return "it decides what it keeps."


def _money(money: dict[str, float]) -> str:
    parts = [f"{name} {value:,.2f}" for name, value in money.items() if name != "total" and value]
    return f"{money['total']:,.2f} = {' + '.join(parts)}" if parts else "0.00"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} PiB"


def _rate(bytes_s: float) -> str:
    return f"{_size(bytes_s)}/s"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def _cores(cores: float) -> str:
    return f"{cores:.4f} cores"


def _time(seconds: float) -> str:
    for name, length in (("days", DAY_S), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {name}"
    return f"{seconds:,.0f} s"
