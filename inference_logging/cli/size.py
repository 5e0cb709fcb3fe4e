"""`inference-logging size`: what a fleet's logging takes of memory, disk, network, processor and money."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration
from inference_logging.cli.terminal import table_text
from inference_logging.cli.times import duration_s

if TYPE_CHECKING:
    from inference_logging.config import Config
    from inference_logging.sizing import Measured

_DAY_S: Final = 86_400
_MONTH_S: Final = 30 * _DAY_S
_GB: Final = 1e9
_DEFAULT_KEEP_S: Final = 7 * _DAY_S


class Fleet(NamedTuple):
    """Pods, serving processes in each, requests per second of a pod, seconds that segments are kept."""

    pods: int
    processes: int
    requests_s: float
    keep_s: float


class Prices(NamedTuple):
    """Money for a GB of disk in a month, for a GB that leaves a pod, for a core in a month."""

    disk: float
    network: float
    core: float


def _keep(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


@click.command(
    "size",
    epilog=examples(
        "inference-logging size --pods 200 --requests-s 20 --tokens 256",
        "inference-logging size --requests-s 5 --tokens 800 --records 3 --keep 12h --config logging.yaml --json",
    ),
)
@CONFIG
@SERVICE_NAME
@click.option("--pods", type=click.IntRange(1), default=1, show_default=True, help="How many there are.")
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="That serve, per pod: a queue for each."
)
@click.option("--requests-s", type=click.FloatRange(0, min_open=True), required=True, help="Per pod, on average.")
@click.option("--tokens", type=click.IntRange(0, 1_000_000), required=True, help="Generated for a request.")
@click.option("--input-tokens", type=click.IntRange(0, 1_000_000), default=500, show_default=True, help="Read for one.")
@click.option("--chunks", type=click.IntRange(0, 1_000_000), help="Of a stream. Without it: one for each token.")
@click.option("--records", type=click.IntRange(0, 10_000), default=0, show_default=True,
              help="Application records made inside a request.")  # fmt: skip
@click.option("--keep", metavar="TIME", callback=_keep, help="How long a pod keeps segments: 12h, 7d. Without it: "
              "retention_s, else 7d.")  # fmt: skip
@click.option("--price-disk", type=click.FloatRange(0), default=0.08, show_default=True, help="Of a GB, per month.")
@click.option("--price-network", type=click.FloatRange(0), default=0.01, show_default=True, help="Of a GB shipped.")
@click.option("--price-core", type=click.FloatRange(0), default=30.0, show_default=True, help="Of a core, per month.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table: bytes, seconds.")
def command(
    config_file: Path | None,
    service_name: str | None,
    pods: int,
    processes: int,
    requests_s: float,
    tokens: int,
    input_tokens: int,
    chunks: int | None,
    records: int,
    keep: float | None,
    price_disk: float,
    price_network: float,
    price_core: float,
    as_json: bool,
) -> None:
    """Compute queue, disk, network, processor and money per month of a fleet's logging.

    Some hundred requests of the given shape are recorded here, by the configuration in effect, and measured: bytes in
    the queue, in segments, compressed, and the listener's processor time. The texts are made up, with the frequencies
    of a language. Prices are those of the options; what is sampled out is not counted. Needs zstandard (extra `cli`).
    """
    from inference_logging.sizing import Shape, measure  # pydantic and the middleware take their time

    config = configuration(config_file=config_file, service_name=service_name)
    shape = Shape(input_tokens, tokens, tokens if chunks is None else chunks, records)
    measured = measure(config, shape)
    fleet = Fleet(pods, processes, requests_s, keep or config.retention_s or _DEFAULT_KEEP_S)
    figures = computed(config, measured, fleet, Prices(price_disk, price_network, price_core))
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(_lines(figures, fleet)))


def computed(config: Config, measured: Measured, fleet: Fleet, prices: Prices) -> dict[str, Any]:
    """Return all figures: of a request, of a pod, of the fleet, and money per month."""
    recorded_s = fleet.requests_s * config.sample_ratio
    on_disk = measured.compressed_bytes if config.compress == "zstd" else measured.segment_bytes
    queues = fleet.processes * config.queue_bytes
    pod = {
        "queue_bytes": queues,
        "queue_lasts_s": queues * config.overflow_info_ratio / (recorded_s * measured.queue_bytes),
        "written_bytes_s": recorded_s * measured.segment_bytes,
        "disk_bytes": recorded_s * fleet.keep_s * on_disk,
        "listener_cores": recorded_s * measured.listener_cpu_s,
    }
    shipped = recorded_s * _MONTH_S * fleet.pods * measured.segment_bytes
    total = {
        "queue_bytes": fleet.pods * queues,
        "disk_bytes": fleet.pods * pod["disk_bytes"],
        "shipped_bytes_month": shipped,
        "archived_bytes_month": recorded_s * _MONTH_S * fleet.pods * measured.compressed_bytes,
        "listener_cores": fleet.pods * pod["listener_cores"],
    }
    money = {
        "disk": total["disk_bytes"] / _GB * prices.disk,
        "network": shipped / _GB * prices.network,
        "listener": total["listener_cores"] * prices.core,
    }
    return {
        "request": measured._asdict(),
        "pod": pod,
        "fleet": total,
        "money_month": {**money, "total": sum(money.values())},
    }


def _lines(figures: dict[str, Any], fleet: Fleet) -> Iterator[str]:
    from inference_logging.pages.content import Table

    request, pod, total, money = (figures[name] for name in ("request", "pod", "fleet", "money_month"))
    rows = [
        (
            "queue, in shared memory",
            _size(request["queue_bytes"]),
            _size(pod["queue_bytes"]),
            _size(total["queue_bytes"]),
        ),
        ("written to segments", _size(request["segment_bytes"]), f"{_size(pod['written_bytes_s'])}/s", ""),
        ("disk", "", _size(pod["disk_bytes"]), _size(total["disk_bytes"])),
        ("shipped in a month", _size(request["segment_bytes"]), "", _size(total["shipped_bytes_month"])),
        ("archived in a month, zstd", _size(request["compressed_bytes"]), "", _size(total["archived_bytes_month"])),
        ("listener", f"{request['listener_cpu_s'] * 1e6:.1f} µs", _cores(pod), _cores(total)),
    ]
    heads = ("", "a request", "a pod", f"{fleet.pods:,} pods")
    note = (
        f"Without a listener, a pod's queue takes {_time(pod['queue_lasts_s'])} of this load. "
        f"Segments are kept for {_time(fleet.keep_s)}."
    )
    yield table_text(Table(f"{fleet.requests_s:g} requests/s in each pod", heads, rows, note))
    yield f"\nper month: {money['total']:,.2f} = " + " + ".join(
        f"{name} {money[name]:,.2f}" for name in ("disk", "network", "listener")
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} PiB"


def _cores(of: dict[str, float]) -> str:
    return f"{of['listener_cores']:.4f} cores"


def _time(seconds: float) -> str:
    for name, length in (("days", _DAY_S), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {name}"
    return f"{seconds:,.0f} s"
