"""The dashboard's JSON and its recording rules: what can be judged without a running Prometheus."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging.record.health import STATES
from tests.chart.chart import CHART
from tests.chart.prometheus import RUNBOOK, nearest_aggregations, promtool, render, written_rules
from tests.chart.test_dashboard import DASHBOARD, EXPRESSIONS, NOTES, PANELS, TARGETS, filled_in

pytestmark = pytest.mark.chart

TEXT = (CHART / "files" / "dashboard.json").read_text()
RECORDINGS = CHART / "files" / "recordings.yaml"
UNITS = {"reqps", "percentunit", "s", "short", "none", "Bps", "bytes", "wps", "si:tok/s", "si:rec/s"}
"""Grafana's, and two of its own form for others."""


def test_every_panel_has_a_unit_and_says_in_words_what_it_shows() -> None:
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert len(panel["description"].split()) >= 8, panel["title"]
        assert panel["description"].endswith("."), panel["title"]


def test_a_unit_is_that_of_what_is_asked() -> None:
    for panel in PANELS:
        unit, expressions = panel["fieldConfig"]["defaults"]["unit"], [one["expr"] for one in panel["targets"]]
        if panel["type"] == "heatmap":
            assert panel["options"]["yAxis"]["unit"] == "s"
            assert "_seconds_bucket" in expressions[0]
        for expression in expressions:
            if "histogram_quantile" in expression:
                assert unit == "s"
            elif " / " in expression and "hot_path_seconds" not in expression:
                assert unit == "percentunit"
            elif "increase(" in expression:
                assert unit in ("short", "bytes")
            elif "rate(" in expression and panel["type"] != "heatmap":
                assert unit in ("reqps", "Bps", "si:tok/s", "si:rec/s", "none", "s"), panel["title"]


def test_the_first_row_is_the_service_with_thresholds_and_lines() -> None:
    first, *panels = DASHBOARD["panels"][:6]
    assert (first["type"], first["title"]) == ("row", "Service")
    assert DASHBOARD["panels"][6]["type"] == "row"
    for panel in panels:
        assert panel["type"] == "stat"
        assert panel["options"]["graphMode"] == "area"
        low, *steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert low["value"] is None
        assert sorted(step["value"] for step in steps) == [step["value"] for step in steps] != []
        assert {"green", "red"} <= {low["color"], *(step["color"] for step in steps)}
    assert [panel["targets"][0]["legendFormat"] for panel in panels][2:4] == ["p50", "p50"]


def test_no_series_is_asked_for_without_what_is_chosen() -> None:
    chosen = 'namespace=~"$namespace",service=~"$service",pod=~"$pod"'
    asked = [*EXPRESSIONS.values(), *NOTES.values()]
    series = [one for expression in asked for one in re.findall(r"\b(\w[\w:]*)\{([^}]*)\}", expression)]
    assert len(series) > len(EXPRESSIONS)
    # An alert has no service: it is joined to the pods of that service.
    assert {name for name, labels in series if not labels.startswith(chosen)} == {"ALERTS"}
    for expression in EXPRESSIONS.values():
        named = re.findall(r"(?:inference_logging|gen_ai_server|http_server)[\w:]*(?=[^\w:])", expression)
        assert len(named) == len(re.findall(r"(?:inference_logging|gen_ai_server|http_server)[\w:]*\{", expression))
    of_requests = 'gen_ai_request_model=~"$model",gen_ai_operation_name=~"$operation"'
    inference = r"gen_ai_server|inference_logging_tokens_total|engine_\w+_time"
    for name, labels in series:
        assert bool(re.search(inference, name)) == (of_requests in labels), name
        assert ("http_server" in name) == ('http_route=~"$route"' in labels), name


def test_the_interval_of_rates_stands_in_rates_and_nowhere_else() -> None:
    for name, expression in EXPRESSIONS.items():
        outside = re.sub(r"\b(?:rate|increase)\([\w:]+\{[^}]*\}\[\$__rate_interval\]\)", "", expression)
        assert not re.search(r"rate_interval|\brate\(|increase\(|\[", outside), name


def test_the_maximum_over_a_pods_endpoints_comes_before_any_sum() -> None:
    # What shows it under load cannot see it where a value is mostly 0.
    for expression in [*EXPRESSIONS.values(), NOTES["Deploys"]]:
        found = nearest_aggregations(expression)
        assert found
        for series, aggregation in found.items():
            assert aggregation.startswith(("max by (namespace, pod", "max by (service, namespace, pod")), series


def test_every_histogram_of_requests_is_asked_with_its_exemplars() -> None:
    assert {name for name, target in TARGETS.items() if target["exemplar"]} == {
        name for name, one in EXPRESSIONS.items() if re.search(r"\bgen_ai_server_\w+_bucket\{", one)
    }
    (tracing,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "tracing"]
    assert tracing["type"] == "datasource"
    linked = [panel for panel in PANELS if "${tracing}" in json.dumps(panel["fieldConfig"]["defaults"].get("links"))]
    assert {panel["title"] for panel in linked} >= {"Duration", "Duration: heat map", "First chunk: heat map"}


def test_every_expression_parses(tmp_path: Path) -> None:
    # As rules, which promtool parses without data.
    asked = [*EXPRESSIONS.values(), *NOTES.values()]
    rules = [{"record": f"panel:{number}", "expr": filled_in(one)} for number, one in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "rules.yaml", directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_ids_and_places_are_unique_and_nothing_hangs_below_a_gap() -> None:
    panels = DASHBOARD["panels"]
    assert re.fullmatch(r"[a-z-]{1,40}", DASHBOARD["uid"])
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert taken == {(x, y) for x in range(24) for y in range(max(y for _, y in taken) + 1)}
    for panel in PANELS:
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert sources == [{"type": "prometheus", "uid": "${datasource}"}] * len(sources)


def test_the_states_have_the_names_of_health() -> None:
    (panel,) = [panel for panel in PANELS if panel["type"] == "state-timeline"]
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    names = [mapping["options"][str(number)]["text"] for number in range(len(mapping["options"]))]
    assert tuple(names) == STATES
    assert re.findall(r'(\d) \* .*?state="(\w+)"', panel["targets"][0]["expr"]) == [
        (str(number), name) for number, name in enumerate(STATES)
    ]


def test_the_alerts_that_panels_name_exist_and_lead_to_their_section_of_the_runbook() -> None:
    alerts = {rule["alert"] for group in written_rules()["groups"] for rule in group["rules"] if "alert" in rule}
    sections = set(re.findall(r"^## (\w+)$", (CHART / "RUNBOOK.md").read_text(), re.MULTILINE))
    named = {alert for panel in PANELS for alert in re.findall(r"InferenceLogging\w+", panel["description"])}
    assert len(named) > 12
    assert named <= alerts & sections
    for panel in PANELS:
        linked = [link["url"] for link in panel["links"]]
        asked = re.findall(r"InferenceLogging\w+", panel["description"])
        assert linked == [f"${{runbook}}#{alert.lower()}" for alert in asked], panel["title"]
    assert [link["url"] for link in DASHBOARD["links"]] == ["${runbook}"]


def test_what_panels_take_from_recording_rules_is_recorded_and_nothing_else_is() -> None:
    recorded = {rule["record"] for group in yaml.safe_load(RECORDINGS.read_text())["groups"] for rule in group["rules"]}
    assert {name for one in EXPRESSIONS.values() for name in re.findall(r"inference_logging:[\w:]+", one)} == recorded
    quantiles = [one for one in EXPRESSIONS.values() if "histogram_quantile" in one]
    assert len(quantiles) > 15
    assert all(re.search(r"\(inference_logging:", one) for one in quantiles)


def test_recording_rules_count_a_pod_once_and_stay_apart_by_pod_model_and_route(tmp_path: Path) -> None:
    for path in (RECORDINGS, Path(__file__).parent / "recordings.yaml"):
        shutil.copy(path, tmp_path / ("rules.yaml" if path == RECORDINGS else "test.yaml"))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", "test.yaml", directory=tmp_path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_chart_hands_it_to_grafana_as_it_is_and_only_if_asked_to() -> None:
    dashboard = {"enabled": True, "annotations": {"grafana_folder": "Serving", "owner": "team"}}
    made = render("dashboard.yaml", dashboard=dashboard, alerts={"runbookUrl": RUNBOOK})
    given = TEXT.replace('"${alerts.runbookUrl}"', json.dumps(RUNBOOK))
    assert json.loads(made["data"]["inference-logging.json"]) == json.loads(given) != DASHBOARD
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["annotations"] == {"grafana_folder": "Serving", "owner": "team"}
    with pytest.raises(AssertionError, match="could not find template"):
        render("dashboard.yaml")


def test_the_chart_brings_the_recording_rules_with_the_dashboard_and_the_alerts_on_their_own() -> None:
    def groups(**values: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = render("prometheusrule.yaml", **values)["spec"]["groups"]
        return found

    recordings = yaml.safe_load(RECORDINGS.read_text())["groups"]
    shown, alerts = {"enabled": True}, {"enabled": True, "runbookUrl": RUNBOOK}
    assert groups(dashboard=shown) == recordings
    both = groups(dashboard=shown, alerts=alerts)
    assert both == groups(alerts=alerts) + recordings
    assert groups(dashboard={**shown, "recordingRules": False}, alerts=alerts) == groups(alerts=alerts)
    with pytest.raises(AssertionError, match="could not find template"):
        groups(dashboard={**shown, "recordingRules": False})
    # Prometheus refuses a file with two groups of one name.
    assert len({group["name"] for group in both}) == len(both)
    # What the tests under load evaluate is what helm makes.
    assert expressions(both) == expressions(written_rules()["groups"])


def expressions(groups: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the rules, with numbers written in one way: helm has its own."""

    def written(expression: str) -> str:
        return re.sub(r"(?<=> )[\d.e+]+", lambda number: f"{float(number[0]):g}", " ".join(expression.split()))

    return [(rule.get("alert") or rule["record"], written(rule["expr"])) for group in groups for rule in group["rules"]]
