"""The dashboard: a real Prometheus, which scrapes a real server, listener and shipper, answers every expression."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from inference_logging import Config
from inference_logging.health import STATES
from tests.chart.prometheus import (
    CHART,
    Prometheus,
    Target,
    installed,
    nearest_aggregations,
    promtool,
    render,
    rendered_rules,
    scraping,
)
from tests.servers import Server, free_port, serving
from tests.sidecars import Sidecar, environment
from tests.support import wait_until

pytestmark = pytest.mark.chart

TEXT = (CHART / "files" / "dashboard.json").read_text()
DASHBOARD: dict[str, Any] = json.loads(TEXT)
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAMES = [f"{panel['title']}-{target['refId']}" for panel in PANELS for target in panel["targets"]]
EXAMPLES = Path(__file__).parents[2] / "examples"
NODE_EXPORTER = "prometheus-node-exporter"

# What a service in good order has none of; all others must show more than zeroes.
QUIET = {
    "State of the logging-A",
    "Page cache of the node that waits for the disk-B",
    "Starts, failures and deaths-A",
    "Starts, failures and deaths-B",
    "Starts, failures and deaths-C",
    "Difference of the books-A",
    "Fallback active-A",
    "Queues and requests in flight-C",
    "Segments that could not be looked after-A",
    "Age of the oldest record that is not shipped-A",
    "Bytes that are not shipped-A",
}


def filled_in(expression: str) -> str:
    """Return the expression with the variables as Grafana fills them in, over all namespaces and pods."""
    for name, value in {"$namespace": ".*", "$pod": ".*", "$__rate_interval": "10m"}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


@dataclass
class Load:
    """Clients of the example: streams, whole answers, what is refused and what is too large, until the end."""

    server: Server

    def __enter__(self) -> Load:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join()

    def _ask(self) -> None:
        number = 0
        with httpx.Client(base_url=self.server.url, timeout=120) as client:
            while not self._ending.wait(0.02):
                number += 1
                text = {"messages": [{"role": "user", "content": "word " * 200}]}
                whole = {"model": "example", "max_tokens": 3, "tokens_per_second": 1000, **text}
                streamed = {**whole, "stream": True, "stream_options": {"include_usage": True}}
                client.post("/v1/chat/completions", json=streamed if number % 2 else whole)
                client.post("/v1/completions", json={"model": "example", "max_tokens": number % 5})  # 0: refused
                client.get("/health")


@dataclass(frozen=True)
class Watched:
    """Everything together."""

    prometheus: Prometheus
    config: Config
    node: bool


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run the example with two workers under load, its listener and shipper, and a Prometheus that scrapes all.

    Nobody reads one of its sinks, and its listener is stopped for a while: copies and records are dropped.
    """
    directory = tmp_path_factory.mktemp("watched")
    installed("prometheus")
    config = Config(
        directory=directory / "segments",
        queue_directory=directory / "queues",
        queue_bytes=1 << 17,
        max_record_bytes=1 << 14,
        sink_buffer_bytes=1 << 16,
        listener="external",
        metrics_path="/metrics",
        sample_ratio=0.5,
        flush_interval_s=0.1,
        rotate_bytes=1 << 16,
        quota_bytes=5 << 15,
        compress="zstd",
        compress_keep_segments=1,
        audit="on",
        audit_directory=directory / "audit",
    )
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERENCE_LOGGING_ADDITIONAL_SINKS", f"unix://{directory / 'nobody'}")
        listener = running.enter_context(Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1"))
        port = wait_until(lambda: reported_port(listener), "the listener's port")
        command = ("uvicorn", "fastapi_app:app", "--app-dir", str(EXAMPLES), "--port", "{port}", "--workers", "2")
        server = running.enter_context(serving(config, *command, "--no-access-log"))
        targets = [Target(server.port, "server"), Target(port, "listener")]
        targets += [Target(shipping(config, directory, running), "shipper")]
        node = exporting(running) if shutil.which(NODE_EXPORTER) else None
        targets += [Target(node, "node-exporter", pod="node-exporter", namespace="monitoring")] if node else []
        running.enter_context(Load(server))
        prometheus = running.enter_context(scraping(directory, targets, rendered_rules()))
        listener.signal(signal.SIGSTOP)
        dropped = 'sum(increase(inference_logging_records_dropped_total{reason="queue_full"}[10m])) > 0'
        wait_until(lambda: prometheus.query(dropped), "a queue to be full")
        listener.signal(signal.SIGCONT)
        yield Watched(prometheus, config, bool(node))


def reported_port(listener: Sidecar) -> int | None:
    found = [re.search(r"serves /metrics on port (\d+)", line) for line in listener.lines]
    return next((int(match[1]) for match in found if match), None)


def started(command: list[str], running: ExitStack, **options: Any) -> None:
    """Run a process until the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    running.callback(process.wait, 60)
    running.callback(process.terminate)


def exporting(running: ExitStack) -> int:
    """Run node-exporter; return its port."""
    port = free_port()
    only = ["--collector.disable-defaults", "--collector.cpu"]
    started([installed(NODE_EXPORTER), f"--web.listen-address=127.0.0.1:{port}", *only], running)
    return port


def shipping(config: Config, directory: Path, running: ExitStack) -> int:
    """Run a shipper to a database; return the port of its metrics."""
    port = free_port()
    command = [sys.executable, "-m", "inference_logging.cli.main", "ship", "--metrics-port", str(port)]
    destination = {"INFERENCE_LOGGING_SHIP_TO": f"sqlite://{directory / 'shipped.db'}"}
    started(command, running, env={**environment(config), **destination})
    return port


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=NAMES)
def test_no_panel_is_without_data(expression: str, watched: Watched, request: pytest.FixtureRequest) -> None:
    if "node_cpu_seconds_total" in expression and not watched.node:
        pytest.skip(f"{NODE_EXPORTER} is not installed (on Debian: apt-get install {NODE_EXPORTER})")
    quiet = request.node.callspec.id in QUIET

    def has_data() -> bool:
        values = [float(one["value"][1]) for one in watched.prometheus.query(filled_in(expression))]
        return any(not math.isnan(value) and (quiet or value > 0) for value in values)

    wait_until(has_data, expression)


TOLD_TWICE = [expression for expression in EXPRESSIONS if re.search(r"inference_logging_(?!ship_)|gen_ai", expression)]


@pytest.mark.parametrize("expression", TOLD_TWICE)
def test_a_pod_that_is_scraped_at_server_and_listener_counts_once(expression: str, watched: Watched) -> None:
    def total(expression: str) -> float:
        found = [float(one["value"][1]) for one in watched.prometheus.query(filled_in(expression))]
        return sum(value for value in found if not math.isnan(value))

    server = expression.replace('pod=~"$pod"', 'pod=~"$pod",container="server"')
    # The endpoints are not scraped at the same instant.
    wait_until(lambda: total(expression) <= 1.5 * total(server) + 1e-9, f"{expression}: half of {total(expression)}")


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=NAMES)
def test_the_maximum_over_a_pods_endpoints_comes_before_any_sum(expression: str) -> None:
    # The test before cannot see it where a value is mostly 0.
    for series, aggregation in nearest_aggregations(expression).items():
        assert aggregation.startswith("max by (namespace, pod"), series


def test_the_chosen_namespace_and_pod_narrow_every_expression_of_ours(watched: Watched) -> None:
    for expression in EXPRESSIONS:
        elsewhere = expression.replace("$pod", "somebody-elses").replace("$namespace", "somebody-elses")
        if "node_cpu_seconds_total" not in expression:
            assert watched.prometheus.query(filled_in(elsewhere)) == [], expression


def test_the_variables_find_namespaces_and_pods(watched: Watched) -> None:
    queries = {one["name"]: one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"}
    assert set(queries) == {"namespace", "pod"}
    for name, query in queries.items():
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert match
        assert match[2] == name
        found = watched.prometheus.query(filled_in(match[1]))
        assert {one["metric"][name] for one in found} == {"serving" if name == "namespace" else "chat-0"}


def test_every_alert_is_evaluated_without_an_error(watched: Watched) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in watched.prometheus.rules())

    wait_until(evaluated, "all rules to be evaluated")
    rules = watched.prometheus.rules()
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) == sum(len(group["rules"]) for group in rendered_rules()["groups"])


def test_every_series_of_ours_that_an_alert_asks_for_is_there(watched: Watched) -> None:
    # This one is only there while a process is dead, which a note of its listener tells.
    note = watched.config.resolved_queue_directory / "dead-engine"
    note.write_text("engine")
    rules = [rule["expr"] for group in rendered_rules()["groups"] for rule in group["rules"]]
    asked = {series for rule in rules for series in re.findall(r"inference_logging_\w+(?:\{[^}]*\})?", rule)}
    assert len(asked) > 15
    for series in sorted(asked):
        wait_until(partial(watched.prometheus.query, series), series)
    note.unlink()


def test_the_alerts_of_what_was_done_to_it_fire_and_no_others(watched: Watched) -> None:
    wanted = {f"InferenceLogging{name}" for name in ("RecordsDropped", "CopiesDropped", "WriteErrors")}

    def firing() -> set[str]:
        return {rule["name"] for rule in watched.prometheus.rules() if rule["state"] == "firing"}

    wait_until(lambda: firing() >= wanted, f"{wanted} to fire")
    assert firing() == wanted


def test_every_expression_parses(tmp_path: Path) -> None:
    # As rules, which promtool parses without data.
    rules = [{"record": f"panel:{number}", "expr": filled_in(one)} for number, one in enumerate(EXPRESSIONS)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "rules.yaml", directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_ids_and_places_are_unique_and_every_panel_says_what_it_shows() -> None:
    panels = DASHBOARD["panels"]
    assert re.fullmatch(r"[a-z-]{1,40}", DASHBOARD["uid"])
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(NAMES)) == len(NAMES)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
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


def test_the_alerts_that_panels_name_exist() -> None:
    alerts = {rule["alert"] for group in rendered_rules()["groups"] for rule in group["rules"]}
    named = set(re.findall(r"InferenceLogging\w+", TEXT))
    assert named
    assert named <= alerts


def test_the_chart_hands_it_to_grafana_as_it_is_and_only_if_asked_to() -> None:
    dashboard = {"enabled": True, "folder": "Serving", "annotations": {"owner": "team"}}
    made = render("dashboard.yaml", dashboard=dashboard)
    assert json.loads(made["data"]["inference-logging.json"]) == DASHBOARD
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["annotations"] == {"grafana_folder": "Serving", "owner": "team"}
    with pytest.raises(AssertionError, match="could not find template"):
        render("dashboard.yaml")
