"""Write the dashboard of the chart, Grafana's JSON, from the tables of ``panels_service`` and its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tools.chart.expressions import CHOSEN, REQUESTS, SERVED, Panel, once
from tools.chart.panels_logging import COST, LOGGING, NODE, SEGMENTS, SINKS
from tools.chart.panels_requests import ENGINE, ROUTES
from tools.chart.panels_service import LATENCY, SERVICE, TRAFFIC

ROWS: Final[dict[str, list[Panel]]] = {
    "Service": SERVICE,
    "Latency": LATENCY,
    "Requests and tokens": TRAFFIC,
    "Routes": ROUTES,
    "Engine": ENGINE,
    "Logging: state, queues, losses, cost": LOGGING,
    "Logging: sinks and audit": SINKS,
    "Logging: segments and shipping": SEGMENTS,
    "Logging: what it costs": COST,
    "Sidecar and node": NODE,
}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
BUILD: Final = "inference_logging_build_info"
COLUMNS: Final = 24
# The data source that the variable names, over the time that the panel shows.
_TRACES: Final = (
    '/explore?left={"datasource":"${tracing}","queries":[{"refId":"A","queryType":"traceqlSearch"}],'
    '"range":{"from":"${__from}","to":"${__to}"}}'
)
_STATES: Final = (
    ("ok", "green"),
    ("pressured", "yellow"),
    ("producer_died", "purple"),
    ("degraded", "orange"),
    ("stuck", "red"),
)


def written() -> str:
    """Return the file's text."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    return {
        "uid": "inference-logging",
        "title": "Inference logging",
        "description": "How the service is, whether anything of its logging was lost, and what that costs. Alerts and "
        "their runbook are in the same chart.",
        "tags": ["inference", "logging"],
        "schemaVersion": 39,
        "version": 2,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": _annotations()},
        "links": [_link("Runbook", "${runbook}")],
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": []} | _place(
            0, top, COLUMNS, 1
        )
        left, top, height = 0, top + 1, 0
        for panel in panels:
            number += 1
            if left + panel.width > COLUMNS:
                left, top = 0, top + height
            height = 5 if panel.form == "stat" else 8
            yield {"id": number} | _panel(panel) | _place(left, top, panel.width, height)
            left += panel.width
        top += height


def _place(left: int, top: int, width: int, height: int) -> dict[str, Any]:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> dict[str, Any]:
    kinds = {"stat": "stat", "heatmap": "heatmap", "states": "state-timeline"}
    steps = panel.steps or (("green", None),)
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]},
    }
    if panel.title == "Difference of the books":
        del defaults["min"]
    if panel.form in ("share", "states"):
        defaults["max"] = 1 if panel.form == "share" else len(_STATES) - 1
    if panel.traces:
        defaults["links"] = [_link("Traces of this time", _TRACES)]
    options, more = _form(panel)
    alerts = re.findall(r"InferenceLogging\w+", panel.description)
    return {
        "type": kinds.get(panel.form, "timeseries"),
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults | more, "overrides": _overrides(panel)},
        "options": options,
        "links": [_link(f"Runbook: {alert}", f"${{runbook}}#{alert.lower()}") for alert in alerts],
        "targets": [_target(panel, place) for place in range(len(panel.queries))],
    }


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    """Leave series that are 0 all the time out of the legend: reasons and errors are many, and few of them happen."""
    if panel.form not in ("stack", "bars"):
        return []
    zero = {"id": "byValue", "options": {"reducer": "max", "op": "lte", "value": 0}}
    hidden = {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": False}}
    return [{"matcher": zero, "properties": [hidden]}]


def _form(panel: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a panel's options, and what its form adds to the defaults of its fields."""
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if panel.form == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        look = {"colorMode": "value", "graphMode": "area", "justifyMode": "center", "textMode": "value_and_name"}
        return {"reduceOptions": reduced, "orientation": "vertical"} | look, {"color": {"mode": "thresholds"}}
    if panel.form == "heatmap":
        color = {"mode": "scheme", "scheme": "Blues", "exponent": 0.5, "steps": 64, "reverse": False}
        options = {
            "calculate": False,
            "cellGap": 1,
            "color": color,
            "cellValues": {"unit": panel.unit},
            "yAxis": {"unit": "s", "axisPlacement": "left"},
            "rowsFrame": {"layout": "auto"},
            "filterValues": {"le": 1e-9},
            "exemplars": {"color": "rgba(224,47,68,0.8)"},
            "tooltip": {"mode": "single", "yHistogram": True},
            "legend": {"show": True},
        }
        return options, {}
    if panel.form == "states":
        mapped = {
            str(place): {"text": text, "color": color, "index": place} for place, (text, color) in enumerate(_STATES)
        }
        options = {"mergeValues": True, "showValue": "never", "alignValue": "left", "rowHeight": 0.8, "legend": legend}
        return options, {"mappings": [{"type": "value", "options": mapped}]}
    return {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": legend}, {"custom": _drawn(panel)}


def _drawn(panel: Panel) -> dict[str, Any]:
    """Return how the lines or bars of a panel are drawn."""
    is_stacked = panel.form in ("stack", "bars")
    drawn: dict[str, Any] = {
        "drawStyle": "bars" if panel.form == "bars" else "line",
        "lineWidth": 1,
        "fillOpacity": {"bars": 70, "stack": 30}.get(panel.form, 8),
        "showPoints": "never",
        "stacking": {"mode": "normal" if is_stacked else "none", "group": "A"},
    }
    if panel.form == "log":
        drawn["scaleDistribution"] = {"type": "log", "log": 10}
    if panel.steps:
        drawn["thresholdsStyle"] = {"mode": "area"}
    return drawn


def _target(panel: Panel, place: int) -> dict[str, Any]:
    query = panel.queries[place]
    target = {
        "refId": "ABCDEFG"[place],
        "datasource": SOURCE,
        "editorMode": "code",
        "range": True,
        "legendFormat": query.legend,
        "exemplar": query.exemplar,
        "expr": query.expr,
    }
    return target | ({"format": "heatmap"} if panel.form == "heatmap" else {})


def _variables() -> list[dict[str, Any]]:
    chained = {
        "namespace": ("Namespace", BUILD, "namespace"),
        "service": ("Service", f'{BUILD}{{namespace=~"$namespace"}}', "service"),
        "pod": ("Pod", f'{BUILD}{{namespace=~"$namespace",service=~"$service"}}', "pod"),
        "model": ("Model", f"{REQUESTS}{{{CHOSEN}}}", "gen_ai_request_model"),
        "operation": ("Operation", f'{REQUESTS}{{{CHOSEN},gen_ai_request_model=~"$model"}}', "gen_ai_operation_name"),
        "route": ("Route", f"{SERVED}_count{{{CHOSEN}}}", "http_route"),
    }
    queries = [_chosen(name, label, f"label_values({series}, {key})") for name, (label, series, key) in chained.items()]
    return [
        _source("datasource", "Data source", "prometheus"),
        *queries,
        _source("tracing", "Traces", "tempo"),
        # The template of the chart puts alerts.runbookUrl in.
        {"name": "runbook", "label": "Runbook (URL)", "type": "textbox", "query": "${alerts.runbookUrl}", "hide": 0},
    ]


def _source(name: str, label: str, kind: str) -> dict[str, Any]:
    return {"name": name, "label": label, "type": "datasource", "query": kind, "current": {}, "hide": 0, "regex": ""}


def _chosen(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _annotations() -> list[dict[str, Any]]:
    builds = once(BUILD, ("version",)).replace("(namespace", "(service, namespace")
    before = builds.replace("})", "} offset 2m)")
    firing = 'ALERTS{alertname=~"InferenceLogging.+",alertstate="firing",namespace=~"$namespace",pod=~"$pod"}'
    here = f"group by (namespace, pod) ({BUILD}{{{CHOSEN}}})"
    return [
        {
            "builtIn": 1,
            "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": True,
            "hide": True,
            "iconColor": "rgba(0, 211, 255, 1)",
            "name": "Annotations & Alerts",
            "type": "dashboard",
        },
        # A pod or a version that was not there two minutes before.
        _annotation("Deploys", "blue", f"{builds} unless {before}", "{{version}}", "service"),
        _annotation("Alerts", "red", f"{firing} and on (namespace, pod) {here}", "{{alertname}}", "severity"),
    ]


def _annotation(name: str, color: str, expression: str, title: str, tags: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expression,
        "step": "30s",
        "titleFormat": title,
        "textFormat": "{{namespace}}/{{pod}}",
        "tagKeys": tags,
    }


def _link(title: str, url: str) -> dict[str, Any]:
    return {"title": title, "url": url, "type": "link", "targetBlank": True}
