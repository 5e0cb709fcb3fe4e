"""The files of the shippers: what they read, how they deliver, where they keep how far they have come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inference_logging import Config
from tests.chart.chart import DELIVERIES, Release, endpoint, parted, render

pytestmark = pytest.mark.chart

FILES = {"otel-collector": "otel-collector.yaml", "fluent-bit": "fluent-bit.yaml", "vector": "vector.yaml"}
USER = {"existingSecret": "s", "keys": {"username": "u", "password": "p"}}
TOKEN = {"existingSecret": "s", "keys": {"token": "t"}}
TLS = {"enabled": True, "ca": {"existingSecret": "ca"}, "client": {"existingSecret": "client"}}
CA, CERT, KEY = "/etc/destination/ca/ca.crt", "/etc/destination/client/tls.crt", "/etc/destination/client/tls.key"
VOLUME = "/var/log/inference-logging"

LONGEST_LINE: dict[str, Callable[[Any], int]] = {
    "otel-collector": lambda config: config["receivers"]["file_log"]["max_log_size"],
    "fluent-bit": lambda config: config["pipeline"]["inputs"][0]["buffer_max_size"],
    "vector": lambda config: config["sources"]["segments"]["max_line_bytes"],
}
METRICS_PORT: dict[str, Callable[[Any], int]] = {
    "otel-collector": lambda config: config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"][
        "prometheus"
    ]["port"],
    "fluent-bit": lambda config: config["service"]["http_port"],
    "vector": lambda config: int(config["sinks"]["own"]["address"].rpartition(":")[2]),
}


def shipping(shipper: str, destination: str, **given: Any) -> Release:
    """Render a shipper with a destination."""
    return render(
        shipper={"type": shipper}, destination={"type": destination, "endpoints": [endpoint(destination)], **given}
    )


def config_of(shipper: str, destination: str, **given: Any) -> dict[str, Any]:
    """Return what its file says."""
    return shipping(shipper, destination, **given).yaml(FILES[shipper])


def exporter(destination: str, **given: Any) -> dict[str, Any]:
    """Return the only exporter of the collector."""
    (found,) = config_of("otel-collector", destination, **given)["exporters"].values()
    assert isinstance(found, dict)
    return found


def output(destination: str, **given: Any) -> dict[str, Any]:
    """Return the only output of Fluent Bit."""
    (found,) = config_of("fluent-bit", destination, **given)["pipeline"]["outputs"]
    assert isinstance(found, dict)
    return found


def sink(destination: str, **given: Any) -> dict[str, Any]:
    """Return Vector's sink."""
    found = config_of("vector", destination, **given)["sinks"]["destination"]
    assert isinstance(found, dict)
    return found


# All


@pytest.mark.parametrize("shipper", FILES)
def test_a_shipper_follows_the_segments_from_their_beginning_and_its_state_is_on_their_volume(shipper: str) -> None:
    release = shipping(shipper, "kafka")
    directory = release.yaml("logging.yaml")["directory"]
    config = release.yaml(FILES[shipper])
    if shipper == "otel-collector":
        reading = config["receivers"]["file_log"]
        assert (reading["include"], reading["start_at"]) == ([f"{directory}/*.jsonl"], "beginning")
        state = config["extensions"][reading["storage"]]["directory"]
    elif shipper == "fluent-bit":
        (reading,) = config["pipeline"]["inputs"]
        assert (reading["path"], reading["read_from_head"]) == (f"{directory}/*.jsonl", True)
        assert config["service"]["storage.path"].startswith(f"{VOLUME}/")
        state = reading["db"]
    else:
        reading = config["sources"]["segments"]
        assert (reading["include"], reading["read_from"]) == ([f"{directory}/*.jsonl"], "beginning")
        state = f"{config['data_dir']}/"
    assert state.startswith(f"{VOLUME}/")
    # Not among the segments, which are removed by age and quota.
    assert not state.startswith(directory)


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        ({}, ["{}/audit/*.jsonl"]),
        ({"audit_directory": "/audit"}, ["/audit/*.jsonl"]),
        ({"audit_directory": f"{VOLUME}/audit"}, [f"{VOLUME}/audit/*.jsonl"]),
        ({"audit_sink": "sqlite"}, []),
        ({"audit": "off", "audit_directory": "/audit"}, []),
    ],
    ids=str,
)
@pytest.mark.parametrize("shipper", FILES)
def test_a_shipper_follows_the_segments_of_the_audit_lane_where_there_are_any(
    shipper: str, audit: dict[str, str], expected: list[str]
) -> None:
    destination = {"type": "kafka", "endpoints": [endpoint("kafka")]}
    mounts = [{"name": "audit", "mountPath": "/audit"}]
    sidecar = {"type": shipper, "extraVolumeMounts": mounts}
    release = render(shipper=sidecar, destination=destination, config={"audit": "on"} | audit)
    directory = release.yaml("logging.yaml")["directory"]
    config = release.yaml(FILES[shipper])
    if shipper == "fluent-bit":
        found = config["pipeline"]["inputs"][0]["path"].split(",")
    else:
        found = (config["receivers"]["file_log"] if shipper == "otel-collector" else config["sources"]["segments"])[
            "include"
        ]
    assert found == [f"{directory}/*.jsonl", *(path.format(directory) for path in expected)]


@pytest.mark.parametrize("shipper", FILES)
def test_the_longest_record_that_can_be_is_read_as_one_line(shipper: str) -> None:
    kafka = {"type": "kafka", "endpoints": ["k:9092"]}
    releases = [
        render(shipper={"type": shipper}, destination=kafka, config={"max_record_bytes": largest})
        for largest in ("64KiB", "1MiB")
    ]
    lengths = [LONGEST_LINE[shipper](release.yaml(FILES[shipper])) for release in releases]
    assert lengths[0] >= 1 << 20
    assert lengths[1] >= 12 << 20


@pytest.mark.parametrize("shipper", DELIVERIES)
def test_kafka_acknowledges_by_all_replicas(shipper: str) -> None:
    if shipper == "otel-collector":
        assert exporter("kafka")["producer"]["required_acks"] == -1
    elif shipper == "fluent-bit":
        assert output("kafka")["rdkafka.request.required.acks"] == "-1"
    elif shipper == "vector":
        assert sink("kafka")["librdkafka_options"]["request.required.acks"] == "all"
    else:
        # `ship` has no other way: it refuses another one in its file of properties.
        assert shipping(shipper, "kafka").environment("shipper")["INFERENCE_LOGGING_SHIP_TO"].startswith("kafka://")


@pytest.mark.parametrize("shipper", FILES)
def test_kafka_gets_user_and_certificates(shipper: str) -> None:
    given: dict[str, Any] = {**USER, "mechanism": "SCRAM-SHA-256", "tls": TLS, "topic": "t"}
    if shipper == "otel-collector":
        found = exporter("kafka", **given)
        assert found["auth"]["sasl"] == {
            "username": "${env:DESTINATION_USERNAME}",
            "password": "${env:DESTINATION_PASSWORD}",
            "mechanism": "SCRAM-SHA-256",
        }
        assert found["tls"] == {"ca_file": CA, "cert_file": CERT, "key_file": KEY}
        assert (found["brokers"], found["logs"]) == (["broker:9092"], {"topic": "t", "encoding": "raw"})
    elif shipper == "fluent-bit":
        found = output("kafka", **given)
        assert found["rdkafka.security.protocol"] == "sasl_ssl"
        assert (found["rdkafka.sasl.mechanism"], found["rdkafka.sasl.password"]) == (
            "SCRAM-SHA-256",
            "${DESTINATION_PASSWORD}",
        )
        assert (found["rdkafka.ssl.ca.location"], found["rdkafka.ssl.key.location"]) == (CA, KEY)
        assert (found["brokers"], found["topics"]) == ("broker:9092", "t")
    else:
        found = sink("kafka", **given)
        assert (found["sasl"]["mechanism"], found["sasl"]["password"]) == ("SCRAM-SHA-256", "${DESTINATION_PASSWORD}")
        assert found["tls"] == {"enabled": True, "ca_file": CA, "crt_file": CERT, "key_file": KEY}
        assert (found["bootstrap_servers"], found["topic"]) == ("broker:9092", "t")


@pytest.mark.parametrize("shipper", FILES)
def test_certificates_are_mounted_where_the_file_says(shipper: str) -> None:
    release = shipping(shipper, "kafka", tls=TLS)
    mounts = {one["name"]: one["mountPath"] for one in release.containers["shipper"]["volumeMounts"]}
    assert (mounts["destination-ca"], mounts["destination-client"]) == (CA.rpartition("/")[0], CERT.rpartition("/")[0])


@pytest.mark.parametrize("shipper", DELIVERIES)
def test_the_metrics_of_a_shipper_are_on_the_port_of_its_container(shipper: str) -> None:
    release = render(
        shipper={"type": shipper, "port": 7777}, destination={"type": "kafka", "endpoints": ["broker:9092"]}
    )
    assert {"name": "ship-metrics", "containerPort": 7777} in release.containers["shipper"]["ports"]
    if shipper == "inference-logging":
        assert "--metrics-port=7777" in release.containers["shipper"]["args"]
        return
    config = release.yaml(FILES[shipper])
    port = METRICS_PORT[shipper](config)
    assert port == 7777


# The OpenTelemetry Collector


def test_the_collector_has_nothing_in_memory_that_counts_as_read() -> None:
    release = shipping("otel-collector", "otlp")
    config = release.yaml("otel-collector.yaml")
    assert "--feature-gates=stanza.synchronousLogEmitter" in release.containers["shipper"]["args"]
    assert config["service"]["pipelines"]["logs"]["processors"] == ["memory_limiter"]
    assert exporter("otlp")["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert config["receivers"]["file_log"]["retry_on_failure"] == {"enabled": True, "max_elapsed_time": "0s"}
    for destination in ("otlp", "loki", "kafka", "elasticsearch"):
        queue = exporter(destination)["sending_queue"]
        assert (queue["storage"], queue["block_on_overflow"]) == ("file_storage", True)


def test_the_collector_sends_to_loki_by_its_otlp_route_for_a_tenant() -> None:
    found = exporter("loki", endpoints=["https://loki:3100/"], tenant="a", **TOKEN)
    assert found["endpoint"] == "https://loki:3100/otlp"
    assert found["headers"] == {"X-Scope-OrgID": "a", "Authorization": "Bearer ${env:DESTINATION_TOKEN}"}


def test_the_collector_knows_a_user_by_its_extension_and_elasticsearch_by_its_fields() -> None:
    config = config_of("otel-collector", "otlp", **USER)
    assert "basicauth/destination" in config["service"]["extensions"]
    assert exporter("otlp", **USER)["auth"] == {"authenticator": "basicauth/destination"}
    assert exporter("elasticsearch", **USER)["password"] == "${env:DESTINATION_PASSWORD}"
    assert exporter("elasticsearch", **TOKEN)["api_key"] == "${env:DESTINATION_TOKEN}"


def test_the_collector_keeps_below_the_memory_of_its_container() -> None:
    release = render(shipper={"resources": {"limits": {"memory": "500Mi"}}})
    assert int(release.environment("shipper")["GOMEMLIMIT"]) == 500 * (1 << 20) * 8 // 10


# Fluent Bit


def test_fluent_bit_reads_in_pieces_of_32_kb_and_flushes_every_two_seconds_to_files() -> None:
    config = config_of("fluent-bit", "forward")
    (reading,) = config["pipeline"]["inputs"]
    assert (reading["buffer_chunk_size"], config["service"]["flush"]) == ("32k", 2)
    assert reading["storage.type"] == "filesystem"


def test_fluent_bit_waits_for_the_destination_and_gives_nothing_up() -> None:
    config = config_of("fluent-bit", "forward")
    assert config["pipeline"]["inputs"][0]["storage.pause_on_chunks_overlimit"] is True
    assert config["service"]["storage.max_chunks_up"] == 16
    assert output("forward")["retry_limit"] == "no_limits"
    # Above it, chunks would be dropped.
    assert "storage.total_limit_size" not in output("forward")


def test_fluent_bit_tries_a_destination_that_was_away_for_long_again_after_half_a_minute_at_most() -> None:
    service = config_of("fluent-bit", "forward")["service"]
    assert (service["scheduler.base"], service["scheduler.cap"]) == (1, 30)


def test_fluent_bit_sends_a_request_to_indexes_again_until_all_of_it_is_there() -> None:
    user = output("elasticsearch", **USER)
    assert (user["name"], user["generate_id"], user["http_passwd"]) == ("opensearch", True, "${DESTINATION_PASSWORD}")
    # An output without ids would have copies of all that it sends again.
    token = output("elasticsearch", **TOKEN)
    assert (token["name"], "generate_id" in token) == ("es", False)
    (rename,) = config_of("fluent-bit", "elasticsearch")["pipeline"]["filters"]
    assert rename["rename"] == "http.request.body http.request.body.text"
    assert "filters" not in config_of("fluent-bit", "otlp")["pipeline"]


def test_fluent_bit_forwards_over_tcp_or_tls_and_waits_for_the_acknowledgement() -> None:
    plain = output("forward", endpoints=["fluentd:24224"])
    assert (plain["host"], plain["port"], plain["require_ack_response"]) == ("fluentd", 24224, True)
    assert "tls" not in plain
    key = {"existingSecret": "s", "keys": {"sharedKey": "k"}}
    secure = output("forward", endpoints=["fluentd:24224"], tls=TLS, **key)
    assert (secure["tls"], secure["tls.verify"], secure["tls.ca_file"]) == (True, True, CA)
    assert (secure["tls.crt_file"], secure["tls.key_file"]) == (CERT, KEY)
    assert secure["shared_key"] == "${DESTINATION_SHARED_KEY}"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://gateway:4318", ("gateway", 4318, None, "/v1/logs")),
        ("https://gateway.example.com", ("gateway.example.com", 443, True, "/v1/logs")),
        ("http://gateway/tenants/a/", ("gateway", 80, None, "/tenants/a/v1/logs")),
    ],
)
def test_fluent_bit_gets_host_port_and_path_of_a_url(url: str, address: tuple[Any, ...]) -> None:
    found = output("otlp", endpoints=[url])
    assert (found["host"], found["port"], found.get("tls"), found["logs_uri"]) == address


def test_fluent_bit_gives_loki_few_labels_and_its_name() -> None:
    found = output("loki", labels={"cluster": "a"}, tenant="t", **USER)
    assert {*found["labels"].split(",")} == {"service_name=inference", "pod=${POD_NAME}", "cluster=a"}
    assert (found["tenant_id"], found["http_passwd"]) == ("t", "${DESTINATION_PASSWORD}")
    assert output("elasticsearch", **TOKEN)["http_api_key"] == "${DESTINATION_TOKEN}"
    assert output("otlp", **TOKEN)["header"] == ["Authorization Bearer ${DESTINATION_TOKEN}"]


# Vector


@pytest.mark.parametrize("destination", DELIVERIES["vector"])
def test_vector_counts_as_read_what_the_destination_has_acknowledged(destination: str) -> None:
    found = sink(destination)
    assert found["acknowledgements"] == {"enabled": True}
    assert "buffer" not in found
    config = config_of("vector", destination)
    assert config["sources"]["segments"]["fingerprint"] == {"strategy": "checksum", "lines": 1}


def test_vector_logs_in_to_each_destination() -> None:
    assert sink("loki", **TOKEN)["auth"] == {"strategy": "bearer", "token": "${DESTINATION_TOKEN}"}
    assert sink("elasticsearch", **USER)["auth"]["password"] == "${DESTINATION_PASSWORD}"
    assert sink("elasticsearch", **TOKEN)["request"]["headers"] == {"Authorization": "ApiKey ${DESTINATION_TOKEN}"}


# Ours

CLIENT = {"client": {"existingSecret": "mine"}}


@pytest.mark.parametrize(
    ("destination", "given", "to"),
    [
        ("kafka", {"endpoints": ["a:9092", "b:9092"], "topic": "t"}, "kafka://a:9092,b:9092/t"),
        ("otlp", {"endpoints": ["https://gateway"]}, "otlp+https://gateway"),
        ("otlp", {"endpoints": ["https://gateway"], "signal": "both"}, "otlp+https://gateway?signal=both"),
        ("syslog", {"endpoints": ["s:6514"], "tls": {"enabled": True}}, "syslog+tls://s:6514?max_bytes=8192"),
        (
            "syslog",
            {"endpoints": ["s:6514"], "maxBytes": 1_048_576, "tls": {"enabled": True, **CLIENT}},
            "syslog+tls://s:6514?max_bytes=1048576&cert=/etc/destination/client/tls.crt&key=/etc/destination/client/tls.key",
        ),
        ("syslog", {"endpoints": ["s:601"]}, "syslog+tcp://s:601?max_bytes=8192"),
        ("elasticsearch", {"endpoints": ["http://e:9200"]}, "elasticsearch+http://e:9200/inference-logs"),
        ("elasticsearch", {"endpoints": ["https://e/of/it/"], "index": "i"}, "elasticsearch+https://e/of/it/i"),
        ("clickhouse", {"endpoints": ["http://c:8123"]}, "clickhouse+http://c:8123/inference_logs"),
        (
            "clickhouse",
            {"endpoints": ["https://c/"], "user": "shipper", "database": "logs", "ttlDays": 90},
            "clickhouse+https://shipper@c/logs?ttl_days=90",
        ),
    ],
)
def test_ship_gets_its_destination(destination: str, given: dict[str, Any], to: str) -> None:
    release = shipping("inference-logging", destination, **given)
    assert release.environment("shipper")["INFERENCE_LOGGING_SHIP_TO"] == to
    assert Config(ship_to=to).resolved_ship_name == destination
    assert parted(release.containers["shipper"])[1][:2] == ["inference-logging", "ship"]
    assert len(release.all("ConfigMap")) == 1


@pytest.mark.parametrize(("flush_seconds", "most"), [(25, 75), (900, 600)])
def test_ship_tries_on_for_as_long_as_the_end_of_the_pod_takes(flush_seconds: int, most: int) -> None:
    release = render(shipper={"type": "inference-logging", "flushSeconds": flush_seconds})
    seconds = release.environment("shipper")["INFERENCE_LOGGING_DRAIN_DEADLINE_S"]
    assert seconds == str(min(most, release.pod["terminationGracePeriodSeconds"]))
    assert Config(drain_deadline_s=float(seconds)).drain_deadline_s == most, "no more than the parameter takes"
