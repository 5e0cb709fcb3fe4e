"""Opens the shipper that a configuration names: its directories, and its destination or bucket.

Destinations are one table of openers, by the scheme of ``ship_to``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from inference_logging.errors import ConfigError
from inference_logging.record.config import Config
from inference_logging.record.config.parameters.audit import AUDIT_SUFFIX
from inference_logging.record.config.problems import shown
from inference_logging.ship.directories import Directories, Fixed, Member, Pattern
from inference_logging.ship.http import pairs
from inference_logging.ship.line import Destination
from inference_logging.ship.offsets import State
from inference_logging.ship.shipper import Shipper
from inference_logging.ship.source import Source
from inference_logging.ship.sources import EachSource, Sources

if TYPE_CHECKING:
    from inference_logging.ship.s3.shipper import SegmentShipper

M = TypeVar("M", bound=Member)


def opener(
    config: Config, name: str, every: tuple[Pattern, Path] | None, *, once: bool
) -> Callable[[], Shipper | SegmentShipper]:
    """Return what opens the shipper, as often as that takes."""
    if (config.ship_to or "").startswith("s3://"):
        return partial(_to_bucket, config, name, every)
    destination = open_destination(config)
    return lambda: Shipper(_source(config, name, every, once=once), destination, config)


def _each(opens: Callable[[Path, str], M], directories: list[tuple[Path, str]]) -> list[M]:
    """Return what ``opens`` for each directory; if it cannot, what was opened is closed again."""
    with contextlib.ExitStack() as closing:
        members = [closing.enter_context(contextlib.closing(opens(*one))) for one in directories]
        closing.pop_all()
        return members


def schema(config: Config) -> str:
    """Return the statements, or the template, that ``ship_to`` needs. Raises ``ConfigError`` if it needs none."""
    to = config.ship_to or ""
    if to.startswith("clickhouse"):
        from inference_logging.ship import clickhouse, clickhouse_schema  # only where there is ClickHouse

        return clickhouse_schema.text(clickhouse.Place.parse(to).ttl_days)
    if to.startswith(("opensearch", "elasticsearch")):
        from inference_logging.ship import opensearch  # only where there is one of them

        return opensearch.text(opensearch.Place.parse(to))
    raise ConfigError([f"ship_to={to!r}: has no schema; clickhouse+…, opensearch+… and elasticsearch+… have one"])


def _source(config: Config, name: str, every: tuple[Pattern, Path] | None, *, once: bool) -> Sources:
    # Its server knows a block that it has by what is in it.
    repeats = (config.ship_to or "").startswith("clickhouse")
    if every is not None:
        pattern, state = every
        return EachSource(pattern, State(state, name), once=once, repeats=repeats)

    def opened(of: Path, suffix: str) -> Source:
        return Source(of, name, suffix=suffix, once=once, repeats=repeats)

    return Sources(_each(opened, _directories(config)))


def _directories(config: Config) -> list[tuple[Path, str]]:
    """Return the directories of segments, each with what follows the service in their prefixes."""
    audit = config.resolved_audit_directory
    found = [(config.directory, "")]
    if audit.resolve() != config.directory.resolve() and (config.audit == "on" or audit.is_dir()):
        found.append((audit, AUDIT_SUFFIX))
    return found


def _to_bucket(config: Config, name: str, every: tuple[Pattern, Path] | None) -> SegmentShipper:
    from inference_logging.ship.s3.delivery import Delivery  # only where there is a bucket
    from inference_logging.ship.s3.place import Place, PlaceError
    from inference_logging.ship.s3.shipper import Folder, SegmentShipper
    from inference_logging.ship.s3.staging import Staging
    from inference_logging.ship.s3.store import Store

    try:
        place = Place.parse(config.ship_to or "")
    except PlaceError as error:
        raise ConfigError([f"ship_to: {error}"]) from None
    ca_file = str(config.ship_ca_file) if config.ship_ca_file else None
    store = Store(place, timeout_s=config.ship_timeout_s, ca_file=ca_file)
    folders: Fixed[Folder] | Directories[Folder]
    if every is not None:
        pattern, directory = every
        state, staging = State(directory, name), Staging(directory / f".{name}.staging")

        def opened(of: Path, suffix: str) -> Folder:
            return Folder(of, state.part(str(of)), staging, suffix=suffix)

        folders = Directories(pattern, state, opened)
    else:

        def own(of: Path, suffix: str) -> Folder:
            return Folder.of(of, name, suffix=suffix)

        folders = Fixed(_each(own, _directories(config)))
    return SegmentShipper(folders, Delivery(store, place), config)


Opener = Callable[[str, Config], Destination]
"""Makes the destination of a ``ship_to``; the configuration has its other parameters."""


def open_destination(config: Config) -> Destination:
    """Return the destination of ``ship_to``; it connects when there is something to send.

    Raises ``ConfigError`` if there is no destination of its scheme and for the content of a file,
    ``MissingExtraError``.
    """
    to = config.ship_to
    opener = _OPENERS.get((to or "").partition("://")[0])
    if to is None or opener is None:
        raise ConfigError([f"ship_to={shown(to)}: must name a destination of records: {', '.join(_OPENERS)}"])
    return opener(to, config)


def _kafka(to: str, config: Config) -> Destination:
    from inference_logging.ship.kafka import KafkaDestination

    brokers, _, topic = to.partition("://")[2].rpartition("/")
    properties = dict(pairs(config.ship_kafka_file, "ship_kafka_file", "="))
    if config.ship_ca_file:
        properties["ssl.ca.location"] = str(config.ship_ca_file)
    return KafkaDestination(brokers, topic, timeout_s=config.ship_timeout_s, properties=properties)


def _otlp(to: str, config: Config) -> Destination:
    from inference_logging.ship.otlp import open_otlp

    return open_otlp(to, timeout_s=config.ship_timeout_s, headers=_headers(config), ca_file=_ca_file(config))


def _clickhouse(to: str, config: Config) -> Destination:
    from inference_logging.ship.clickhouse import ClickHouseDestination, Place

    return ClickHouseDestination(
        Place.parse(to), timeout_s=config.ship_timeout_s, headers=_headers(config), ca_file=_ca_file(config)
    )


def _index(to: str, config: Config) -> Destination:
    from inference_logging.ship.opensearch import IndexDestination, Place

    return IndexDestination(
        Place.parse(to), timeout_s=config.ship_timeout_s, headers=_headers(config), ca_file=_ca_file(config)
    )


def _syslog(to: str, config: Config) -> Destination:
    from inference_logging.ship.syslog import open_syslog

    return open_syslog(to, timeout_s=config.ship_timeout_s, ca_file=_ca_file(config))


def _journald(to: str, config: Config) -> Destination:
    from inference_logging.ship.journal import LocalJournal

    return LocalJournal(Path(unquote(to.partition("://")[2])), timeout_s=config.ship_timeout_s)


_OPENERS: Final[Mapping[str, Opener]] = {
    "kafka": _kafka,
    "otlp+http": _otlp,
    "otlp+https": _otlp,
    "clickhouse+http": _clickhouse,
    "clickhouse+https": _clickhouse,
    "opensearch+http": _index,
    "opensearch+https": _index,
    "elasticsearch+http": _index,
    "elasticsearch+https": _index,
    "syslog+tcp": _syslog,
    "syslog+tls": _syslog,
    "journald": _journald,
}


def _headers(config: Config) -> dict[str, str]:
    return dict(pairs(config.ship_headers_file, "ship_headers_file", ":"))


def _ca_file(config: Config) -> str | None:
    return str(config.ship_ca_file) if config.ship_ca_file else None
