"""The destination that a configuration names: one table of openers, by the scheme of ``ship_to``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from inference_logging.errors import ConfigError
from inference_logging.record.config import Config
from inference_logging.record.config.problems import shown
from inference_logging.ship.files import pairs
from inference_logging.ship.line import Destination

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
    from inference_logging.ship.clickhouse.destination import ClickHouseDestination
    from inference_logging.ship.clickhouse.place import Place

    return ClickHouseDestination(
        Place.parse(to), timeout_s=config.ship_timeout_s, headers=_headers(config), ca_file=_ca_file(config)
    )


def _index(to: str, config: Config) -> Destination:
    from inference_logging.ship.opensearch.destination import IndexDestination
    from inference_logging.ship.opensearch.place import Place

    return IndexDestination(
        Place.parse(to), timeout_s=config.ship_timeout_s, headers=_headers(config), ca_file=_ca_file(config)
    )


def _syslog(to: str, config: Config) -> Destination:
    from inference_logging.ship.syslog import open_syslog

    return open_syslog(to, timeout_s=config.ship_timeout_s, ca_file=_ca_file(config))


def _journald(to: str, config: Config) -> Destination:
    from inference_logging.ship.journal.local import LocalJournal

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
