"""The alerts: each fires when it should and not otherwise, as promtool and the chart's rendering have it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.chart.chart import CHART
from tests.chart.prometheus import RUNBOOK, promtool, render, rendered_rules
from tests.kit.servers import free_port
from tests.kit.support import wait_until
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("alert_cases.yaml").read_text())
SOURCE = CHART / "files" / "alerts.yaml"
WRITTEN: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(SOURCE.read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in WRITTEN]
FOREIGN = (
    "InferenceLoggingCollectorQueueFilling",
    "InferenceLoggingDirectoriesRefused",
    "InferenceLoggingRestarts",
    "InferenceLoggingShipperDiscards",
)
"""Third-party shippers, the listener of a node, and the parents of listeners and shippers, have one endpoint each."""


def rules_of(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rules by the names of their alerts."""
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the rules as the chart makes them, and their tests."""
    made = tmp_path_factory.mktemp("rules")
    (made / "alerts.yaml").write_text(yaml.safe_dump(rendered_rules()))
    for alert, tests in CASES.items():
        case = {"rule_files": ["alerts.yaml"], "evaluation_interval": "30s", "tests": tests}
        (made / f"{alert}.yaml").write_text(json.dumps(case))
    return made


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_fires_when_it_should_and_not_otherwise(alert: str, directory: Path) -> None:
    expected = [one["exp_alerts"] for test in CASES[alert] for one in test["alert_rule_test"]]
    assert any(expected)
    assert not all(expected)
    tested = promtool("test", "rules", f"{alert}.yaml", directory=directory)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_collector_has_the_metrics_that_the_alerts_ask_for(tmp_path: Path) -> None:
    port = free_port()
    read = {"host": "127.0.0.1", "port": port}
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    configuration = {
        "receivers": {"file_log": {"include": [str(tmp_path / "in.jsonl")], "start_at": "beginning"}},
        "exporters": {"otlp_http": {"endpoint": "http://127.0.0.1:9", "retry_on_failure": {"enabled": False}}},
        "service": {
            "telemetry": {"metrics": {"readers": [{"pull": {"exporter": {"prometheus": read}}}]}},
            "pipelines": {"logs": {"receivers": ["file_log"], "exporters": ["otlp_http"]}},
        },
    }
    (tmp_path / "collector.yaml").write_text(yaml.safe_dump(configuration))
    asked = set(re.findall(r"otelcol_\w+", SOURCE.read_text()))
    assert asked >= {"otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity"}
    command = [str(tool("otelcol")), "--config", str(tmp_path / "collector.yaml")]

    def reported() -> set[str]:
        with contextlib.suppress(httpx.TransportError):
            return set(
                re.findall(
                    r"^(otelcol_\w+)", httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=120).text, re.MULTILINE
                )
            )
        return set()

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as collector:
        try:
            # Whether counters end in _total depends on its settings.
            wait_until(lambda: {name.removesuffix("_total") for name in asked} <= reported(), f"{asked}")
        finally:
            collector.kill()


def test_each_case_belongs_to_an_alert() -> None:
    assert sorted(CASES) == sorted(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"queueRatio": 0.25, "consumerLagSeconds": 7, "bytesPerSecond": 123456789},
        {"listenerCpuCores": 1, "dirtyMemoryRatio": 0.33, "shipperLagSeconds": 3600, "routeFailureRatio": 0.5},
        {"loggingCpuRatio": 0.07, "nodeOtherCpuRatio": 0.2},
    ],
)
def test_promtool_finds_nothing_to_complain_about_and_changed_thresholds_arrive(
    changed: dict[str, float], tmp_path: Path
) -> None:
    spec = rendered_rules(**changed)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(NAMES)} rules found" in checked.stdout
    rendered, default = rules_of(spec), rules_of(rendered_rules())
    for rule in WRITTEN:
        used = set(re.findall(r"\$\{(\w+)\}", rule["expr"]))
        before, now = default[rule["alert"]]["expr"], rendered[rule["alert"]]["expr"]
        assert (before != now) is bool(used & changed.keys()), rule["alert"]
        for name in used & changed.keys():
            # helm writes numbers in its own way
            compared = [float(number) for number in re.findall(r"> ([\d.]+(?:e[+-]?\d+)?)", now)]
            assert changed[name] in compared


def test_a_threshold_that_was_taken_away_is_named() -> None:
    with pytest.raises(AssertionError, match="thresholds/consumerLagSeconds': got null, want number"):
        rendered_rules(consumerLagSeconds=None)


def test_each_threshold_of_a_rule_has_a_default_and_each_default_a_rule() -> None:
    used = {name for rule in WRITTEN for name in re.findall(r"\$\{(\w+)\}", rule["expr"])}
    further = yaml.safe_load((CHART / "files" / "further-values.yaml").read_text())
    assert used == set(further["alerts"]["thresholds"])


def test_each_alert_has_severity_texts_with_its_value_and_a_section_of_the_runbook() -> None:
    sections = set(re.findall(r"^## (\w+)$", (CHART / "RUNBOOK.md").read_text(), re.MULTILINE))
    rules = rules_of(rendered_rules())
    assert sections == set(rules)
    for alert, rule in rules.items():
        texts = rule["annotations"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(texts) == {"summary", "description", "runbook_url"}
        assert re.search(r"\{\{ \$labels\.(pod|node) \}\}", texts["summary"]), alert
        # An alert that is either there or not has no other value than the label that it is about.
        assert re.search(r"\$value|\$labels\.producer", texts["description"]), alert
        assert texts["runbook_url"] == f"{RUNBOOK}#{alert.lower()}"


@pytest.mark.parametrize("alert", [rule["alert"] for rule in WRITTEN if "for" in rule])
def test_an_alert_that_waits_is_tested_while_it_waits(alert: str) -> None:
    (fires, *_) = CASES[alert]
    waiting, fired = fires["alert_rule_test"]
    assert waiting["exp_alerts"] == []
    assert fired["exp_alerts"]


def test_without_a_url_the_alerts_name_the_section() -> None:
    rules = rules_of(render("prometheusrule.yaml", alerts={"enabled": True})["spec"])
    assert all(alert in rule["annotations"]["runbook"] for alert, rule in rules.items())


@pytest.mark.parametrize("alert", [name for name in NAMES if name not in FOREIGN])
def test_each_alert_is_tested_with_a_pod_that_is_scraped_at_its_server_and_at_its_listener(alert: str) -> None:
    (fires, *_) = CASES[alert]
    scraped = [re.findall(r'pod="(\w+)".*container="(\w+)"', one["series"]) for one in fires["input_series"]]
    assert {("a", "server"), ("a", "listener")} <= {found for pair in scraped for found in pair}
    *_, tested = fires["alert_rule_test"]
    labels = [tuple(sorted(expected["exp_labels"].items())) for expected in tested["exp_alerts"]]
    assert len(labels) == len(set(labels)), "one alert for both"


def test_labels_of_the_values_are_labels_of_the_rule_and_it_is_off_unless_asked_for() -> None:
    metadata = render("prometheusrule.yaml", alerts={"enabled": True, "labels": {"release": "monitoring"}})["metadata"]
    assert metadata["labels"]["release"] == "monitoring"
    with pytest.raises(AssertionError, match="could not find template"):
        render("prometheusrule.yaml")
