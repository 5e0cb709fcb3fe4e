"""The destination that a configuration names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from inference_logging.config import Config
from inference_logging.errors import ConfigError
from inference_logging.shipping.line import Destination


def open_destination(config: Config) -> Destination:
    """Return the destination of ``ship_to``; most connect only when there is something to send.

    Raises ``ConfigError`` if there is no destination and for the content of a file, ``OpenError`` for a database,
    ``MissingExtraError``.
    """
    if config.ship_to is None:
        raise ConfigError(["ship_to=None: must name a destination, to ship there"])
    to = config.ship_to
    kind, _, rest = to.partition("://")
    timeout_s = config.ship_timeout_s
    ca_file = str(config.ship_ca_file) if config.ship_ca_file else None
    if kind == "kafka":
        from inference_logging.shipping.kafka import KafkaDestination

        brokers, _, topic = rest.rpartition("/")
        properties = dict(_pairs(config.ship_kafka_file, "ship_kafka_file", "="))
        if ca_file:
            properties["ssl.ca.location"] = ca_file
        return KafkaDestination(brokers, topic, timeout_s=timeout_s, properties=properties)
    if kind.startswith("otlp"):
        from inference_logging.shipping.otlp import open_otlp

        headers = dict(_pairs(config.ship_headers_file, "ship_headers_file", ":"))
        return open_otlp(to, timeout_s=timeout_s, headers=headers, ca_file=ca_file)
    if kind.startswith("clickhouse"):
        from inference_logging.shipping.clickhouse.destination import ClickHouseDestination
        from inference_logging.shipping.clickhouse.place import Place

        headers = dict(_pairs(config.ship_headers_file, "ship_headers_file", ":"))
        return ClickHouseDestination(Place.parse(to), timeout_s=timeout_s, headers=headers, ca_file=ca_file)
    if kind.startswith(("opensearch", "elasticsearch")):
        from inference_logging.shipping.opensearch.destination import IndexDestination
        from inference_logging.shipping.opensearch.place import Place as Indexes

        headers = dict(_pairs(config.ship_headers_file, "ship_headers_file", ":"))
        return IndexDestination(Indexes.parse(to), timeout_s=timeout_s, headers=headers, ca_file=ca_file)
    if kind.startswith("forward"):
        from inference_logging.shipping.forward import PORT, ForwardDestination

        parts = urlsplit(to)
        key = _read(config.ship_shared_key_file, "ship_shared_key_file")
        return ForwardDestination(
            (parts.hostname or "", parts.port or PORT),
            parts.path.strip("/"),
            timeout_s=timeout_s,
            shared_key=key.strip().encode() if key is not None else None,
            tls=kind.endswith("+tls"),
            ca_file=ca_file,
        )
    if kind.startswith(("syslog", "relp")):
        from inference_logging.shipping.syslog import open_syslog

        return open_syslog(to, timeout_s=timeout_s, ca_file=ca_file)
    if kind.startswith("journal"):
        from inference_logging.shipping.journal import open_journal

        return open_journal(to, timeout_s=timeout_s, ca_file=ca_file)
    from inference_logging.shipping.database import DatabaseDestination

    return DatabaseDestination(Path(unquote(rest)), timeout_s=timeout_s)


def _pairs(path: Path | None, parameter: str, sign: str) -> list[tuple[str, str]]:
    """Return the lines of a file as names and values; empty ones and comments are left out."""
    pairs = []
    for number, line in enumerate((_read(path, parameter) or "").splitlines(), 1):
        name, found, value = (part.strip() for part in line.partition(sign))
        if line.strip() and not line.lstrip().startswith("#"):
            if not (name and found):
                # Its text may be a secret.
                raise ConfigError([f"{parameter}={str(path)!r}: line {number} is not name{sign}value"])
            pairs.append((name, value))
    return pairs


def _read(path: Path | None, parameter: str) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{parameter}={str(path)!r}: {error}"]) from None
