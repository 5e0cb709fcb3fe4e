"""Where `inference-logging ship` sends segments, and how."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

from inference_logging.record.config.fields import (
    KIB,
    MIB,
    Bytes,
    OptionalPath,
    Parameters,
    matching,
    none_if_empty,
    parameter,
)

_HOST = r"(?:[0-9A-Za-z._-]+|\[[0-9a-fA-F:.]+\])(?::[1-9][0-9]{0,4})?"
_URL_VALUE = r"[!-%'-~]+"
_S3_OPTION = rf"(?:format=(?:jsonl\.zst|parquet)|endpoint=https?://{_HOST}(?:/{_URL_VALUE})?|region=[a-z0-9-]+|part_bytes=[0-9]+)"
_CERTIFICATE = rf"(?:cert|key)=/{_URL_VALUE}"
_FACILITY = "user|daemon|local[0-7]"
_SYSLOG_OPTION = rf"(?:max_bytes=[0-9]{{1,10}}|facility=(?:{_FACILITY})|enterprise=[1-9][0-9]{{0,9}}|{_CERTIFICATE})"
_INDEX = r"[a-z0-9][a-z0-9._-]{0,199}"
BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
"""The name of a bucket."""
_DESTINATION = re.compile(
    rf"kafka://{_HOST}(?:,{_HOST})*/[A-Za-z0-9._-]{{1,249}}"
    rf"|otlp\+https?://{_HOST}(?:/[!->@-~]*)?(?:\?signal=(?:logs|traces|both))?"
    rf"|clickhouse\+https?://(?:[A-Za-z0-9._-]+@)?{_HOST}/[A-Za-z_][A-Za-z0-9_]{{0,63}}(?:\?ttl_days=[1-9][0-9]{{0,3}})?"
    rf"|(?:opensearch|elasticsearch)\+https?://{_HOST}(?:/[0-9A-Za-z._~-]+)*/{_INDEX}(?:\?template=none)?"
    rf"|s3://{BUCKET}(?:/[!->@-~]*)?(?:\?{_S3_OPTION}(?:&{_S3_OPTION})*)?"
    rf"|syslog\+(?:tcp|tls)://{_HOST}(?:\?{_SYSLOG_OPTION}(?:&{_SYSLOG_OPTION})*)?"
    r"|journald:///[^\x00-\x1f\x7f]+"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")

Destination = Annotated[str | None, BeforeValidator(none_if_empty), matching(_DESTINATION)]
ShipName = Annotated[str, matching(_NAME)]
DESTINATIONS = (
    "kafka://host:9092,host:9092/topic, otlp+http://host:4318 (or otlp+https; its path is /v1/logs unless given; "
    "?signal=traces sends requests as spans to /v1/traces, ?signal=both sends both, below the given path), "
    "clickhouse+http://user@host:8123/database (or clickhouse+https; ?ttl_days=), opensearch+https://host:9200/index "
    "or elasticsearch+https://host:9200/index (or +http; ?template=none), s3://bucket/prefix (?format=parquet or "
    "jsonl.zst, &endpoint=, &region=, &part_bytes=), syslog+tls://host:6514 (or syslog+tcp; ?max_bytes=, &facility=, "
    "&enterprise=, &cert=, &key=), journald:///run/systemd/journal/socket"
)


class ShippingParameters(Parameters):
    """Where `inference-logging ship` sends segments, and how."""

    ship_to: Destination = parameter(
        None,
        "Where `inference-logging ship` sends the records of the segments in directory and, if there are any, in "
        "audit_directory; each arrives at least once. Servers do not use it, but a listener's retention waits for it "
        "(see retention_waits_for).",
        allowed=DESTINATIONS,
    )
    ship_name: Annotated[str | None, BeforeValidator(none_if_empty), matching(_NAME)] = parameter(
        None,
        "Name of the shipper, for its offsets (.NAME.offsets beside the segments), the empty file SEGMENT.shipped-NAME "
        "that marks a segment as fully acknowledged, and its metrics. One shipper of a name runs at a time. Empty = "
        "the kind of ship_to, such as kafka or s3.",
        allowed="1 to 60 of A-Z a-z 0-9 _ -, or empty",
    )
    ship_batch_records: int = parameter(
        1000,
        "Most records that are sent and acknowledged together.",
        unit="records",
        limits=(1, 100_000),
        advanced=True,
    )
    ship_batch_bytes: Bytes = parameter(
        MIB,
        "Bytes of records that are sent and acknowledged together; one record may exceed it.",
        unit="bytes",
        limits=(KIB, 64 * MIB),
        advanced=True,
    )
    ship_interval_s: float = parameter(
        1.0,
        "Pause after a partial batch or a look that found nothing, so that new records are sent together. For object "
        "storage: time between two looks for sealed segments.",
        unit="s",
        limits=(0.01, 3600.0),
        advanced=True,
    )
    ship_timeout_s: float = parameter(
        30.0,
        "Longest wait for the acknowledgment of a batch; then it is sent again, so it can arrive twice.",
        unit="s",
        limits=(0.1, 3600.0),
        advanced=True,
    )
    ship_retry_s: float = parameter(
        30.0,
        "Longest pause between two attempts while the destination fails; the first pause is 0.1 s, and each next one "
        "twice as long.",
        unit="s",
        limits=(0.1, 3600.0),
        advanced=True,
    )
    ship_ca_file: OptionalPath = parameter(
        None,
        "Certificates (PEM) that the destination's certificate is checked against. Empty = those of the system.",
        allowed="the path of a readable file, or empty",
    )
    ship_kafka_file: OptionalPath = parameter(
        None,
        "File of librdkafka properties, one name=value per line, such as sasl.password. acks and enable.idempotence "
        "must not be changed.",
        allowed="the path of a readable file, or empty",
    )
    ship_headers_file: OptionalPath = parameter(
        None,
        "File of headers for requests to OTLP, ClickHouse, OpenSearch and Elasticsearch, one Name: value per line, "
        "such as Authorization or X-ClickHouse-Key, the password.",
        allowed="the path of a readable file, or empty",
    )
