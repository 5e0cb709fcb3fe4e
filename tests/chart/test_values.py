"""Values that are wrong: each is refused, and named, by the schema or by the checks that look at several together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inference_logging import Config
from inference_logging.record.config.schema import file_schema
from tests.chart.chart import CHART, LEAST, merged, render
from tools.chart.generated import files
from tools.chart.values_schema import PASSED_ON, said

pytestmark = pytest.mark.chart

SCHEMA = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SHOWN = yaml.safe_load(VALUES)
FURTHER = yaml.safe_load((CHART / "files" / "further-values.yaml").read_text(encoding="utf-8"))
DEFAULTS = merged(FURTHER, SHOWN)
PVC = {"segments": {"persistence": {"enabled": True}}}


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield each schema of an object, at any depth."""
    if isinstance(schema, dict):
        if "object" in schema.get("type", ()) and isinstance(schema.get("type"), str | list):
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def names(values: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Yield what stands in the values and not in the schema."""
    for name, value in values.items() if isinstance(values, dict) else ():
        if name in schema.get("properties", {}):
            yield from names(value, schema["properties"][name], f"{path}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{path}.{name}"


def test_what_is_made_from_the_package_is_up_to_date() -> None:
    for path, content in files().items():
        # To write it anew: python -m tools.chart.generated
        assert path.read_text(encoding="utf-8") == content, path.name


def test_the_schema_of_the_configuration_is_the_packages() -> None:
    ours, packages = SCHEMA["properties"]["config"], file_schema("#/properties/config")
    assert set(ours["properties"]) == set(packages["properties"])
    # Helm would show patterns, `--set` makes texts of numbers, and YAML truth of on: the chart refuses these in words.
    differing = [name for name, one in packages["properties"].items() if ours["properties"][name] != one]
    assert set(differing) == set(said(packages))
    assert '"pattern"' not in json.dumps(ours)
    assert ours["additionalProperties"] is False
    assert ours["dependencies"] == packages["dependencies"]


@pytest.mark.parametrize(
    ("config", "accepted"),
    [
        ({"advanced": {"flush_records": 1}}, True),
        ({"advanced": {"flush_records": 0}}, False),
        ({"advanced": {"flush_record": 1}}, False),
        ({"advanced": {"queue_bytes": "1MiB"}}, False),
        ({"advanced": {"flush_records": 1}, "flush_records": 1}, False),
    ],
)
def test_the_schema_knows_the_group_of_advanced_parameters(config: dict[str, Any], accepted: bool) -> None:
    values = merged(DEFAULTS, merged(LEAST, {"config": config}))
    assert jsonschema.Draft7Validator(SCHEMA).is_valid(values) is accepted


def test_every_object_of_the_schema_is_closed_or_says_that_kubernetes_judges_it() -> None:
    for schema in objects(SCHEMA):
        closed = schema.get("additionalProperties") is False or isinstance(schema.get("additionalProperties"), dict)
        assert closed or PASSED_ON in schema.get("description", ""), schema


def test_the_schema_is_valid_and_takes_the_defaults() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(merged(DEFAULTS, LEAST), SCHEMA)


def test_every_value_has_a_default_that_shows_its_place() -> None:
    missing = [name for name in SCHEMA["properties"] if name not in SHOWN]
    assert missing == ["global"]
    for part in (
        "server",
        "listener",
        "storage",
        "shipper",
        "destination",
        "serviceAccount",
        "service",
        "networkPolicy",
    ):
        assert set(SCHEMA["properties"][part]["properties"]) == set(DEFAULTS[part]), part
    assert list(names(DEFAULTS, SCHEMA)) == []


def leaves(values: Any) -> int:
    """Count what can be set in these values by itself: a list, or an empty mapping, is one."""
    return sum(map(leaves, values.values())) if isinstance(values, dict) and values else 1


def test_a_person_can_read_the_values_and_finds_the_name_of_each_further_one() -> None:
    assert leaves(SHOWN) <= 100
    named = set(re.findall(r"\w+", VALUES))
    for name, part in FURTHER.items():
        assert [inner for inner in part if inner not in named] == [], name


def test_each_object_begins_with_the_values_that_are_not_shown() -> None:
    objects = [path for path in (CHART / "templates").iterdir() if path.suffix != ".tpl"]
    assert len(objects) > 10
    for path in objects:
        assert path.read_text(encoding="utf-8").startswith('{{- include "inference-logging.complete" . }}\n'), path.name


def emptied(values: Any) -> Any:
    """Return the names of these values, each without one."""
    return {name: emptied(one) for name, one in values.items()} if isinstance(values, dict) and values else None


@pytest.mark.parametrize("mode", ["server", "node"])
@pytest.mark.parametrize("empty", [emptied, dict.fromkeys], ids=["each value", "each group"])
def test_a_key_without_a_value_is_as_if_it_were_left_out(mode: str, empty: Callable[[Any], dict[str, Any]]) -> None:
    of_mode = {"node": {"namespaces": ["chat"]}, "mode": "node"} if mode == "node" else {}
    own = {"podSecurityContext", "config"} if empty is emptied else {"podSecurityContext"}
    shown = {name: value for name, value in SHOWN.items() if name not in own}
    assert render(**merged(empty(shown), merged(LEAST, of_mode))) == render(**of_mode)


def test_what_the_chart_says_in_words_takes_every_default_of_the_package() -> None:
    defaults = {name: Config.model_fields[name].default for name in said(file_schema())}
    config = {name: one for name, one in defaults.items() if one}
    assert len(config) > 30
    assert render(config=json.loads(json.dumps(config, default=list))).error == ""


def test_a_value_that_is_given_goes_before_a_further_one_also_if_it_is_empty() -> None:
    given = {"readOnlyRootFilesystem": False, "capabilities": {"drop": []}}
    release = render(securityContext=given, podSecurityContext={"runAsUser": None})
    assert release.containers["server"]["securityContext"] == {"allowPrivilegeEscalation": False, **given}
    assert release.pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 2}, "replicas"),
        ({"preset": "tgi"}, "preset"),
        ({"replicaCount": "2"}, "replicaCount"),
        ({"server": {"modle": "m"}}, "modle"),
        ({"server": {"processes": 0}}, "processes"),
        ({"server": {"port": 70000}}, "port"),
        ({"server": {"image": {"name": "x"}}}, "name"),
        ({"server": {"resources": {"limit": {}}}}, "limit"),
        ({"server": {"probes": {"liveness": {"httpget": {}}}}}, "httpget"),
        ({"listener": {"mode": "thread"}}, "mode"),
        ({"listener": {"replicas": 2}}, "replicas"),
        ({"config": {"queue_byte": 1}}, "queue_byte"),
        ({"config": {"version": 2}}, "version"),
        ({"config": {"sample_ratio": 2}}, "sample_ratio"),
        ({"config": {"advanced": {"flush_record": 1}}}, "flush_record"),
        ({"config": {"advanced": {"flush_records": 0}}}, "flush_records"),
        ({"config": {"advanced": {"flush_records": 1}, "flush_records": 1}}, "advanced"),
        ({"storage": {"queue": {"sizeLimit": "16MiB"}}}, "sizeLimit"),
        ({"storage": {"segments": {"persistence": {"accessModes": ["Once"]}}}}, "accessModes"),
        ({"shipper": {"type": "fluentd"}}, "shipper"),
        ({"destination": {"type": "s3"}}, "destination"),
        ({"destination": {"password": "p"}}, "password"),
        ({"destination": {"keys": {"passwort": "p"}}}, "passwort"),
        ({"podDisruptionBudget": {"minAvailable": True}}, "minAvailable"),
        ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
        ({"alerts": {"thresholds": {"queue": 1}}}, "queue"),
        ({"dashboard": {"enable": True}}, "enable"),
        ({"monitor": {"kind": "both"}}, "kind"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor"),
        ({"server": {"image": {"digest": "sha256:1"}}}, "digest"),
    ],
)
def test_a_value_that_is_unknown_or_of_another_type_is_refused_and_named(values: dict[str, Any], named: str) -> None:
    error = render(**values).error
    assert "values don't meet the specifications of the schema" in error
    assert named in error


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"server": {"image": {"repository": ""}}}, "server.image.repository: must be given"),
        ({"preset": "vllm", "server": {"model": ""}}, "server.model: must be given for the preset vllm"),
        ({"preset": "triton", "server": {"model": ""}}, "server.model: must be given for the preset triton"),
        ({"preset": "custom", "server": {"port": None}}, "server.port: must be given for the preset custom"),
        ({"server": {"extraArgs": ["--port=9000"]}}, "server.extraArgs: --port is set by the chart; use server.port"),
        (
            {"preset": "vllm", "server": {"extraArgs": ["--api_server_count", "2"]}},
            "server.extraArgs: --api-server-count is set by the chart; use server.processes",
        ),
        ({"server": {"extraArgs": ["--host=127.0.0.1"]}}, "server.extraArgs: --host is set by the chart"),
        (
            {"config": {"health_path": ""}, "server": {"readyOnBacklog": False}},
            "server.probes: readinessProbe has no path",
        ),
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds=30: must be at least 60"),
        ({"config": {"directory": "/logs"}}, "config.directory=/logs: the chart sets it"),
        ({"config": {"queue_directory": "/q"}}, "config.queue_directory=/q: the chart sets it"),
        ({"config": {"listener": "thread"}}, "config.listener=thread: the chart sets it"),
        (
            {"config": {"flush_interval_s": "0.3"}},
            "config.flush_interval_s=0.3: a text, as --set makes of it; write --set-json config.flush_interval_s=0.3",
        ),
        ({"config": {"advanced": {"ship_retry_s": "1.5"}}}, "write --set-json config.advanced.ship_retry_s=1.5"),
        (
            {"config": yaml.safe_load("engine_records: on")},
            'config.engine_records=true: must be one of "off", "on". YAML reads on as true; write engine_records: "on"',
        ),
        (
            {"config": {"advanced": yaml.safe_load("server_record: on")}},
            'config.advanced.server_record=true: must be one of "off", "on". YAML reads on as true',
        ),
        ({"config": {"sink": "stdout"}}, "config.sink=stdout: must be file, as shipper.type=otel-collector reads"),
        (
            {"config": {"audit": "on", "audit_directory": "/audit"}},
            "config.audit_directory=/audit: no volume of the shipper has it; mount it with shipper.extraVolumeMounts",
        ),
        ({"config": {"compress": "zstd"}}, "config.compress=zstd: otel-collector reads plain segments only"),
        ({"storage": {"queue": {"sizeLimit": "16Mi"}}}, "storage.queue.sizeLimit=16Mi: must be at least 39Mi"),
        (
            {"server": {"processes": 4}, "storage": {"queue": {"sizeLimit": "128Mi"}}},
            "storage.queue.sizeLimit=128Mi: must be at least 147Mi, for the queues of server.processes=4",
        ),
        (
            {"server": {"resources": {"limits": {"memory": "32Mi"}}}},
            "server.resources.limits.memory=32Mi: must be at least 103Mi: 39Mi of queues and 64Mi for each",
        ),
        (
            {"server": {"processes": 4, "resources": {"limits": {"memory": "402Mi"}}}},
            "server.resources.limits.memory=402Mi: must be at least 403Mi",
        ),
        (
            {"listener": {"resources": {"limits": {"memory": "16Mi"}}}},
            "listener.resources.limits.memory=16Mi: must be at least 32Mi",
        ),
        ({"server": None}, "server.image.repository: must be given"),
        ({"listener": {"image": None}}, "listener.image.repository: must be given: none is published; `make images`"),
        ({"image": None, "shipper": {"type": "inference-logging"}}, "\nimage.repository: must be given"),
        ({"image": None, "config": {"audit": "on", "audit_sink": "sqlite"}}, "\nimage.repository: must be given"),
        ({"config": {"queue_bytes": "lots"}}, "config.queue_bytes=lots: must be from 65536 to 4294967296 bytes, as a"),
        ({"config": {"slow_s": "long"}}, "config.slow_s=long: must be a number from 0 to 86400 (s)."),
        ({"config": {"redact_patterns": ["mail"]}}, "config.redact_patterns=[mail]: must be email, phone, card, key"),
        ({"config": {"sample_routes": {"v1": 1}}}, "config.sample_routes=map[v1:1]: must be path patterns and their"),
        ({"config": {"resource": {"a": "\t"}}}, "must be at most 64 names of 1 to 128 letters"),
        ({"config": {"advanced": {"ship_batch_bytes": "1"}}}, "config.advanced.ship_batch_bytes=1: must be from 1024"),
        ({"config": {"quota_bytes": 0}}, "config.quota_bytes=0: must be a limit where segments are on an emptyDir"),
        ({"config": {"quota_bytes": "3GiB"}}, "config.quota_bytes=3221225472: must be below storage.segments.size=2Gi"),
        ({"storage": {"segments": {"size": "128Mi"}}}, "storage.segments.size=128Mi: leaves segments 107374182 bytes"),
        ({"replicaCount": 2, "storage": PVC}, "accessModes=ReadWriteOnce: must be ReadWriteMany for more than one pod"),
        ({"autoscaling": {"enabled": True}, "storage": PVC}, "must be ReadWriteMany for more than one pod"),
        ({"podDisruptionBudget": {"enabled": True}}, "podDisruptionBudget: must have one of"),
        ({"server": {"application": ""}}, "server.application: must be given for the preset fastapi"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}},
            "autoscaling.minReplicas=5: must be at most autoscaling.maxReplicas=2",
        ),
        (
            {"config": {"retention_waits_for": ["otlp"]}},
            "config.retention_waits_for: must be empty: otel-collector leaves no marks on segments",
        ),
        ({"server": {"port": 9464}}, "http and metrics: have the same port 9464"),
        ({"shipper": {"port": 8000}}, "http and ship-metrics: have the same port 8000"),
        (
            {"podDisruptionBudget": {"enabled": True, "minAvailable": 1, "maxUnavailable": 1}},
            "podDisruptionBudget: must have one of",
        ),
        ({"podSpec": {"tolerations": []}}, "podSpec.tolerations: the chart sets it, from a value of its own"),
        (
            {"preset": "triton", "listener": {"mode": "inProcess"}, "monitor": {"kind": "PodMonitor"}},
            "listener.mode=inProcess: serves no metrics for the preset triton",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_parameter_and_value(
    values: dict[str, Any], message: str
) -> None:
    assert message in render(**values).error


@pytest.mark.parametrize("memory", ["0.5Gi", "512Mi", "5e8", "1.5G"])
def test_an_amount_of_memory_may_have_a_fraction(memory: str) -> None:
    assert render(server={"resources": {"limits": {"memory": memory}}}).error == ""


def test_all_that_is_wrong_is_reported_at_once() -> None:
    error = render(config={"listener": "thread"}, terminationGracePeriodSeconds=1).error
    assert "config.listener" in error
    assert "terminationGracePeriodSeconds" in error


def rows(page: Path) -> str:
    """Return the tables of a page."""
    return "\n".join(re.findall(r"^\|.*", page.read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_the_readme_has_the_options_of_each_destination_with_their_defaults() -> None:
    options = {name: default for name, default in FURTHER["destination"].items() if name not in ("tls", "keys")}
    shown = [f"`{name}`" if default in ("", {}) else f"`{name}: {default}`" for name, default in options.items()]
    assert [one for one in shown if one not in rows(CHART / "README.md")] == []


def test_the_page_about_nodes_has_their_further_values_with_their_defaults() -> None:
    shown = []
    for name, default in FURTHER["node"].items():
        if isinstance(default, dict):
            shown += [f"| `{name}.{inner}` | `{value}` |" for inner, value in default.items()]
        else:
            shown.append(f"| `{name}` | `{default}` |")
    assert [one for one in shown if one not in rows(CHART.parent / "docs" / "kubernetes-node.md")] == []


@pytest.mark.parametrize(
    ("processes", "queue_bytes", "limit"),
    re.findall(
        r"^\| (\d+) \| (\d+ MiB)[^|]*\| (\d+Mi) \|$",
        (CHART / "README.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    ),
)
def test_the_readme_says_how_much_memory_queues_take(processes: str, queue_bytes: str, limit: str) -> None:
    release = render(server={"processes": int(processes)}, config={"queue_bytes": queue_bytes})
    assert release.volumes["queue"]["emptyDir"]["sizeLimit"] == limit
