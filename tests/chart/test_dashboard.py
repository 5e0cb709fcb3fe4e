"""The dashboard under a real load: a real Prometheus answers every expression; each kind of panel is drawn."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chart.chart import CHART
from tests.chart.prometheus import Prometheus, Target, written_rules
from tests.chart.watched import MODELS, Watched, watched
from tests.kit.browser import needs_browser
from tests.kit.c_programs import built
from tests.kit.sidecars import Node, served_port
from tests.kit.support import wait_until
from tools.chart.pictures import drawn

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = {f"{panel['title']}-{target['refId']}": target for panel in PANELS for target in panel["targets"]}
EXPRESSIONS: dict[str, str] = {name: target["expr"] for name, target in TARGETS.items()}
VARIABLES = {one["name"]: one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"}
NOTES = {one["name"]: one["expr"] for one in DASHBOARD["annotations"]["list"] if "expr" in one}

# What a service in good order has none of, at least most of the time; all others must show more than zeroes.
QUIET = {
    "State of the logging-A",
    "Requests under way-B",
    "Requests in the engine-B",
    "Difference of the books-A",
    "Fallback active-A",
    "Audit records lost, commits failed-A",
    "Audit records lost, commits failed-B",
    "Segments compressed, and not looked after-B",
    "Age of the oldest record that is not shipped-A",
    "Bytes that are not shipped-A",
    "Starts, failures and deaths-A",
    "Starts, failures and deaths-B",
    "Starts, failures and deaths-C",
    "Page cache of the node that waits for the disk-B",
}


def filled_in(expression: str, **chosen: str) -> str:
    """Return the expression with the variables as Grafana fills them in: all, but for what is chosen."""
    values = {**dict.fromkeys(VARIABLES, ".*"), **chosen, "__rate_interval": "10m"}
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression
    return expression


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run the two pods under load, one of which loses copies and has lost records."""
    with watched(tmp_path_factory.mktemp("watched")) as running:
        running.lose_copies()
        running.lose_records()
        yield running


def sums(prometheus: Prometheus, expressions: dict[str, str], above: str = "-Inf") -> dict[str, float]:
    """Return the sums of what is above ``above`` now, by the names of the expressions that have any."""
    asked = [f'label_replace(sum(({one}) > {above}), "asked", "{name}", "", "")' for name, one in expressions.items()]
    return {one["metric"]["asked"]: float(one["value"][1]) for one in prometheus.query(" or ".join(asked))}


def missing(found: Callable[[], set[str]], names: set[str]) -> set[str]:
    """Wait until each of the names was found once; return those that never are."""
    left = set(names)

    def every_one_was() -> bool:
        left.difference_update(found())
        return not left

    with contextlib.suppress(AssertionError):
        wait_until(every_one_was, "every one")
    return left


@pytest.mark.chart
def test_no_panel_is_without_data(seen: Watched) -> None:
    quiet = {name: filled_in(EXPRESSIONS[name]) for name in QUIET}
    others = {name: filled_in(one) for name, one in EXPRESSIONS.items() if name not in QUIET}
    assert len(others) > 40
    assert missing(lambda: set(sums(seen.prometheus, others, "0")), set(others)) == set()
    assert missing(lambda: set(sums(seen.prometheus, quiet)), set(quiet)) == set()


@pytest.mark.chart
def test_every_histogram_of_requests_that_is_asked_leads_to_their_traces(seen: Watched) -> None:
    asked = {name for name, target in TARGETS.items() if target["exemplar"]}
    assert asked

    def traced() -> set[str]:
        now = time.time()
        return {name for name in asked if traces(seen.prometheus, filled_in(EXPRESSIONS[name]), now - 600, now)}

    assert missing(traced, asked) == set()


def traces(prometheus: Prometheus, expression: str, start: float, end: float) -> list[str]:
    """Return the traces of an expression's exemplars."""
    series = prometheus.ask("query_exemplars", query=expression, start=start, end=end)
    found = [one["labels"]["trace_id"] for each in series for one in each["exemplars"]]
    assert all(re.fullmatch(r"[0-9a-f]{32}", trace) for trace in found)
    return found


@pytest.mark.chart
def test_a_pod_that_is_scraped_at_server_and_listener_counts_once(seen: Watched) -> None:
    # What the rules recorded has no container; and there is one shipper.
    raw = {name for name, one in EXPRESSIONS.items() if not re.search(r"inference_logging(?::|_ship_)", one)}
    assert len(raw) > 40

    def counted_once() -> set[str]:
        asked = {name: filled_in(EXPRESSIONS[name]) for name in raw}
        server = {
            name: filled_in(EXPRESSIONS[name].replace('pod=~"$pod"', 'pod=~"$pod",container="server"')) for name in raw
        }
        both, one = sums(seen.prometheus, asked), sums(seen.prometheus, server)
        # The endpoints are not scraped at the same instant.
        return {name for name in both.keys() & one.keys() if both[name] <= 1.5 * one[name] + 1e-9}

    assert missing(counted_once, raw) == set()


@pytest.mark.chart
def test_what_is_chosen_narrows_every_expression(seen: Watched) -> None:
    def kept(names: list[str], variable: str) -> bool:
        asked = [filled_in(EXPRESSIONS[name], **{variable: "somebody-elses"}) for name in names]
        return bool(seen.prometheus.query(" or ".join(f"({one})" for one in asked)))

    for variable in VARIABLES:
        narrowed = [name for name, one in EXPRESSIONS.items() if f"${variable}" in one]
        assert len(narrowed) == len(EXPRESSIONS) or variable in ("model", "operation", "route")
        # All at once; only if there is a fault, which one has it.
        wrong = [name for name in narrowed if kept([name], variable)] if kept(narrowed, variable) else []
        assert wrong == [], variable


@pytest.mark.chart
def test_the_variables_find_what_is_there_each_within_the_choice_before(seen: Watched) -> None:
    def found(variable: str, **chosen: str) -> set[str]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[variable])
        assert match
        series = seen.prometheus.query(filled_in(match[1], **chosen))
        return {one["metric"][match[2]] for one in series if match[2] in one["metric"]}

    assert list(VARIABLES) == ["namespace", "service", "pod", "model", "operation", "route"]
    assert found("namespace") == {"serving", "batch"}
    assert found("service") == {"chat", "completions"}
    assert found("service", namespace="batch") == {"completions"}
    assert found("pod", namespace="serving", service="chat") == {"chat-0"}
    assert found("pod", namespace="serving", service="completions") == set()
    assert found("model", pod="chat-0") == set(MODELS)
    assert found("operation") == {"chat", "text_completion", "embeddings"}
    assert found("operation", model=MODELS[0]) == {"chat", "text_completion"}
    served = {"/v1/chat/completions", "/v1/completions"}
    assert found("route") == {*served, "/v1/responses", "/audited"}
    assert found("route", pod="completions-0") >= served


@pytest.mark.chart
def test_a_pod_that_is_new_is_marked_as_a_deploy_for_two_minutes(seen: Watched) -> None:
    first = "min by (namespace, service, pod) (min_over_time(timestamp(inference_logging_build_info)[1h:1s]))"
    pods = seen.prometheus.query(first)
    assert {one["metric"]["pod"] for one in pods} == {"chat-0", "completions-0"}
    for pod in pods:

        def marked(after_s: float, begun: float = float(pod["value"][1]), name: str = pod["metric"]["pod"]) -> Any:
            asked = filled_in(NOTES["Deploys"], pod=name)
            found = seen.prometheus.ask("query", query=asked, time=begun + after_s)["result"]
            return [{label: one["metric"][label] for label in ("namespace", "service", "pod")} for one in found]

        assert marked(60) == [pod["metric"]]
        assert marked(150) == []


@pytest.mark.chart
def test_alerts_are_marked_where_their_pod_is_chosen(seen: Watched) -> None:
    alerts = wait_until(lambda: seen.prometheus.query(filled_in(NOTES["Alerts"])), "an alert")
    assert {one["metric"]["pod"] for one in alerts} == {"chat-0"}
    assert seen.prometheus.query(filled_in(NOTES["Alerts"], service="completions")) == []


@pytest.mark.chart
def test_every_rule_is_evaluated_without_an_error(seen: Watched) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in seen.prometheus.rules())

    wait_until(evaluated, "all rules to be evaluated")
    rules = seen.prometheus.rules()
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) == sum(len(group["rules"]) for group in written_rules()["groups"])


@pytest.mark.chart
def test_every_series_of_ours_that_an_alert_asks_for_is_there(seen: Watched, tmp_path: Path) -> None:
    # This one is only there while a process is dead, as a note of its listener says.
    note = seen.config.resolved_queue_directory / "dead-engine"
    note.write_text("engine")
    rules = [rule["expr"] for group in written_rules()["groups"] for rule in group["rules"] if "alert" in rule]
    asked = {series for rule in rules for series in re.findall(r"inference_logging_\w+(?:\{[^}]*\})?", rule)}
    assert len(asked) > 15
    program = built() / "inference-logging-listener"
    with Node(tmp_path, program).listen("--metrics-port", "0", "--metrics-address", "127.0.0.1") as listener:
        port = wait_until(lambda: served_port(listener.lines), "the port of a node's listener")
        Target(port, "listener", "logging", "node", "node-0").add_to(seen.prometheus.targets)
        for series in sorted(asked):
            wait_until(partial(seen.prometheus.query, series), series)
    note.unlink()


@pytest.mark.chart
def test_the_alerts_of_what_was_done_to_it_fire_and_no_others(seen: Watched) -> None:
    wanted = {f"InferenceLogging{name}" for name in ("RecordsDropped", "CopiesDropped", "WriteErrors")}

    def firing() -> set[str]:
        return {rule["name"] for rule in seen.prometheus.rules() if rule.get("state") == "firing"}

    wait_until(lambda: firing() >= wanted, f"{wanted} to fire")
    assert firing() == wanted


TIMES = [1000.0 + step for step in range(30)]
KINDS = {panel["type"]: panel for panel in reversed(PANELS)}


def answer(*series: tuple[str, float | None], exemplars: int = 0) -> dict[str, Any]:
    """Return what Prometheus would have answered: series with one value all the time."""
    named = [{"name": name, "values": [value] * len(TIMES)} for name, value in series]
    marks = [{"name": "Deploys", "colour": "blue", "times": [[1010.0, 1015.0]]}]
    points = [(1000.0 + number, 0.3) for number in range(exemplars)]
    found = {"x": TIMES, "from": TIMES[0], "to": TIMES[-1], "step": 1.0, "series": named}
    return {**found, "exemplars": points, "annotations": marks}


@pytest.mark.chart
@needs_browser
def test_each_kind_of_panel_is_drawn_and_one_without_data_or_colour_is_named() -> None:
    assert set(KINDS) == {"stat", "timeseries", "heatmap", "state-timeline"}
    empty, grey = itertools.islice((one for one in PANELS if one["type"] == "heatmap" and one not in KINDS.values()), 2)
    found = {
        KINDS["stat"]["id"]: answer(("requests", 12.0)),
        KINDS["timeseries"]["id"]: answer(("p50", 0.2), ("p99", 3.0)),
        KINDS["heatmap"]["id"]: answer(("0.1", 1.0), ("0.5", 4.0), ("+Inf", 4.0), exemplars=3),
        KINDS["state-timeline"]["id"]: answer(("a", 0), ("b", 4)),
        empty["id"]: answer(),
        grey["id"]: answer(("0.1", 0.0), ("+Inf", 0.0)),
    }
    panels = [panel for panel in PANELS if panel["id"] in found]
    with drawn({**DASHBOARD, "panels": panels}, found) as (page, problems):
        assert problems[0] == f"{empty['title']}: no data"
        assert {problem for problem in problems[1:] if "nothing is drawn" in problem} == {
            f"{one['title']}: nothing is drawn" for one in (empty, grey)
        }
        stat = page.locator(f"#panel-{KINDS['stat']['id']} .number")
        assert stat.text_content() == "12 req/s"
        assert "3 exemplars" in str(page.locator(f"#panel-{KINDS['heatmap']['id']} .scale").text_content())
