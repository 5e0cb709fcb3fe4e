"""`inference-logging size`: what a fleet's logging takes of memory, disk, network, processor and money."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration
from inference_logging.cli.terminal import table_text
from inference_logging.cli.times import duration_s
from inference_logging.errors import ConfigError, InferenceLoggingError, MissingExtraError

if TYPE_CHECKING:
    from inference_logging.config import Config
    from inference_logging.pages.content import Table
    from inference_logging.shipping.line import Stored
    from inference_logging.sizing import Measured, PerRequest

_DAY_S: Final = 86_400
_MONTH_S: Final = 30 * _DAY_S
_GB: Final = 1e9
_DEFAULT_KEEP_S: Final = 7 * _DAY_S
_KINDS: Final = ("kafka", "otlp", "forward", "clickhouse", "opensearch", "s3", "s3-parquet")
_INDEXES: Final = {
    "clickhouse": "clickhouse+https://user@host/database",
    "opensearch": "opensearch+https://host:9200/index",
    "elasticsearch": "elasticsearch+https://host:9200/index",
}
"""Kinds whose server is asked what it keeps, and how one is named."""
_MOST: Final = 10_000_000
"""Pods, and requests in a second: more is a slip of the hand."""
_TIMES: Final = ("queue_lasts_s", "kept_s")
_OF_SHAPE: Final = ("tokens", "input_tokens", "chunks", "records")


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


class _Number(click.FloatRange):
    """A number that can be counted with: ``nan`` is within every range."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return it. Raises ``click.BadParameter``."""
        number = super().convert(value, parameter, context)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with.", parameter, context)
        return number


class _To(click.ParamType[Any]):
    """A kind of destination, and the URL of its server if that is given."""

    name = "destination"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return both; None: no URL. Raises ``click.BadParameter``."""
        if value in _KINDS:
            return value, None
        kind = str(value).partition("+")[0]
        if kind in _INDEXES:
            return kind, value
        forms = ", ".join((*_KINDS, *_INDEXES.values()))
        return self.fail(f"{value!r} is none of {forms}", parameter, context)


_PRICE: Final = _Number(0, 1e9)


def _time_option(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        found = None if value is None else duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    if found is not None and not 0 < found < math.inf:
        raise click.BadParameter(f"{value!r}: must be longer than nothing, and end", param=parameter)
    return found


@click.command(
    "size",
    epilog=examples(
        "inference-logging size --pods 200 --requests-s 20 --tokens 256",
        "inference-logging size --requests-s 5 --tokens 800 --records 3 --keep 12h --config logging.yaml --json",
        "inference-logging size --measure logs --requests-s 20 --pods 200 --pods-per-node 8 --to s3 --to kafka",
    ),
)
@CONFIG
@SERVICE_NAME
@click.pass_context
@click.option("--pods", type=click.IntRange(1, _MOST), default=1, show_default=True, help="Number of pods.")
@click.option("--pods-per-node", type=click.IntRange(1, _MOST), help="Pods on a node: adds what a node has.")
@click.option(
    "--processes",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Processes that serve, per pod: each has a queue.",
)
@click.option(
    "--requests-s",
    type=_Number(0, _MOST, min_open=True),
    required=True,
    help="Requests per second of a pod, on average.",
)
@click.option("--tokens", type=click.IntRange(0, 1_000_000), help="Tokens of an answer; needed without --measure.")
@click.option(
    "--input-tokens", type=click.IntRange(0, 1_000_000), default=500, show_default=True, help="Tokens of a prompt."
)
@click.option("--chunks", type=click.IntRange(0, 1_000_000), help="Chunks of a stream. Without it: one for each token.")
@click.option("--records", type=click.IntRange(0, 10_000), default=0, show_default=True,
              help="Application records made inside a request.")  # fmt: skip
@click.option("--measure", "measured_directory", metavar="DIRECTORY", type=click.Path(path_type=Path),
              help="Measure these segments, in place of requests that are made up.")  # fmt: skip
@click.option("--sample-ratio", type=_Number(0, 1, min_open=True), help="As sample_ratio of the servers.")
@click.option("--keep", metavar="TIME", callback=_time_option, help="How long a pod keeps segments: 12h, 7d. "
              "Without it: retention_s, else 7d.")  # fmt: skip
@click.option("--to", "given", type=_To(), metavar="KIND|URL", multiple=True,
              help=f"Where records are shipped: {', '.join(_KINDS)}; may be repeated. The server of a URL such as "
              f"{_INDEXES['clickhouse']} or {_INDEXES['opensearch']} is asked what its records take. Without --to: "
              "each kind whose extra is here.")  # fmt: skip
@click.option("--keep-there", metavar="TIME", callback=_time_option, help="How long object storage, or an index, "
              "keeps them. Without it: as ClickHouse's table says, else 30d.")  # fmt: skip
@click.option("--price-disk", type=_PRICE, default=0.08, show_default=True,
              help="Price of a GB of disk, per month; of an index too.")  # fmt: skip
@click.option("--price-network", type=_PRICE, default=0.01, show_default=True, help="Price of a GB shipped.")
@click.option("--price-core", type=_PRICE, default=30.0, show_default=True, help="Price of a core, per month.")
@click.option("--price-storage", type=_PRICE, default=0.023, show_default=True,
              help="Price of a GB of object storage, per month.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables: bytes, seconds.")
def command(
    context: click.Context,
    config_file: Path | None,
    service_name: str | None,
    pods: int,
    pods_per_node: int | None,
    processes: int,
    requests_s: float,
    tokens: int | None,
    input_tokens: int,
    chunks: int | None,
    records: int,
    measured_directory: Path | None,
    sample_ratio: float | None,
    keep: float | None,
    given: tuple[tuple[str, str | None], ...],
    keep_there: float | None,
    price_disk: float,
    price_network: float,
    price_core: float,
    price_storage: float,
    as_json: bool,
) -> None:
    """Compute queue, disk, network, processor and money per month of a fleet's logging.

    Some hundred requests of the given shape are recorded here, by the configuration in effect, and measured: bytes in
    the queue, in segments, compressed, shipped, and the processor time of listener and shipper. The texts are made up,
    with the frequencies of a language. With --measure the lines of your own segments are measured in their place.

    What an index takes depends on its server: one that has records already is asked for the mean of one, by --to with
    its URL, and with the parameters of `ship` (ship_headers_file, ship_ca_file). Nothing is written there.

    The prices are examples: give your own. What is sampled out is not counted. The disk of a pod ends at quota_bytes.
    Needs zstandard (extra `cli`), and for shipping the extra `ship`, for Parquet `query`.
    """
    from inference_logging.sizing import Shape, measure  # pydantic and the middleware take their time

    config = configuration(config_file=config_file, service_name=service_name, sample_ratio=sample_ratio)
    fleet = Fleet(pods, processes, requests_s, keep or config.retention_s or _DEFAULT_KEEP_S, pods_per_node, keep_there)
    wanted = _wanted(given) or _installed()
    stored = {kind: _asked(url, config_file, service_name) for kind, url in wanted.items() if url is not None}
    recorded_s = requests_s * config.sample_ratio
    if measured_directory is not None:
        _refuse_shape(context, measured_directory)
        measured = _of_segments(config, measured_directory, wanted, recorded_s)
    elif tokens is None:
        raise click.UsageError("Missing option '--tokens', or '--measure' in its place.")
    else:
        shape = Shape(input_tokens, tokens, tokens if chunks is None else chunks, records)
        measured = measure(config, shape, wanted, recorded_s)
    prices = Prices(price_disk, price_network, price_core, price_storage)
    figures = computed(config, measured, fleet, prices, stored)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(_lines(figures, fleet)))


def _wanted(given: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return the kinds, each with its URL if there is one."""
    wanted: dict[str, str | None] = {}
    for kind, url in given:
        if wanted.setdefault(kind, url) != url:
            raise click.UsageError(f"--to {url or kind}: {kind} is there already, as {wanted[kind] or kind}")
    return wanted


def _asked(url: str, config_file: Path | None, service_name: str | None) -> Stored:
    from inference_logging.shipping.measured import stored

    config = configuration(config_file=config_file, service_name=service_name, ship_to=url)
    try:
        return stored(config)
    except (ConfigError, MissingExtraError):
        raise
    except InferenceLoggingError as error:
        raise InferenceLoggingError(f"--to {url}: {error}") from None


def _installed() -> dict[str, str | None]:
    """Return the kinds whose libraries are here."""
    needed = {
        "kafka": ("confluent_kafka",), "otlp": ("httpx", "opentelemetry.proto"), "forward": ("msgpack",),
        "clickhouse": ("httpx",), "opensearch": ("httpx",), "s3": (), "s3-parquet": ("duckdb",),
    }  # fmt: skip
    return {kind: None for kind in _KINDS if all(map(_is_there, needed[kind]))}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _refuse_shape(context: click.Context, directory: Path) -> None:
    given = [name for name in _OF_SHAPE if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"--measure {directory}: these segments say what {options} would; leave it out")


def _of_segments(config: Config, directory: Path, kinds: Collection[str], recorded_s: float) -> Measured:
    from inference_logging.sizing import measure_segments

    try:
        return measure_segments(config, directory, kinds, recorded_s)[1]
    except MissingExtraError:
        raise
    except FileNotFoundError:
        raise click.UsageError(f"--measure {directory}: no such directory") from None
    except InferenceLoggingError as error:
        raise click.UsageError(f"--measure {directory}: {error}") from None


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


def _lines(figures: dict[str, Any], fleet: Fleet) -> Iterator[str]:
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
    if kind in _INDEXES:
        return f"its server was not asked what it keeps; name one that has records: --to {_INDEXES[kind]}."
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
    for name, length in (("days", _DAY_S), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {name}"
    return f"{seconds:,.0f} s"
