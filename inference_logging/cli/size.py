"""`inference-logging size`: what a fleet's logging takes of memory, disk, network, processor and money."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from inference_logging.cli.examples import examples
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration
from inference_logging.cli.size_figures import DAY_S, INDEXES, Fleet, Prices, computed
from inference_logging.cli.size_tables import lines
from inference_logging.cli.times import duration_s
from inference_logging.errors import ConfigError, InferenceLoggingError, MissingExtraError

if TYPE_CHECKING:
    from inference_logging.config import Config
    from inference_logging.shipping.line import Stored
    from inference_logging.sizing import Measured

_DEFAULT_KEEP_S: Final = 7 * DAY_S
_KINDS: Final = ("kafka", "otlp", "forward", "clickhouse", "opensearch", "s3", "s3-parquet")
_MOST: Final = 10_000_000
"""Pods, and requests in a second: more is a slip of the hand."""
_OF_SHAPE: Final = ("tokens", "input_tokens", "chunks", "records")


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
        if kind in INDEXES:
            return kind, value
        forms = ", ".join((*_KINDS, *INDEXES.values()))
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
              f"{INDEXES['clickhouse']} or {INDEXES['opensearch']} is asked what its records take. Without --to: "
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
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(lines(figures, fleet)))


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
