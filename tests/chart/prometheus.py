"""A real Prometheus for the tests of alerts and dashboard, and its promtool."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.chart.chart import CHART, helm
from tests.kit.servers import free_port
from tests.kit.support import wait_until

RUNBOOK = "https://example.com/runbook"
_IMAGE = {"image": {"repository": "example.com/image"}}
_GIVEN = {"server": _IMAGE, "listener": _IMAGE, "shipper": {"type": "none"}}
"""What the chart has no default for, and nothing that these tests are about."""


def installed(name: str) -> str:
    """Return the path of a program of Debian's packages of Prometheus, or skip the test."""
    path = shutil.which(name)
    if path is None:
        package = "prometheus" if name == "promtool" else name
        pytest.skip(f"{name} is not installed (on Debian: apt-get install {package})")
    return path


def promtool(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool in ``directory``."""
    command = [installed("promtool"), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)


def render(template: str, **values: Any) -> dict[str, Any]:
    """Return the one object that helm makes of a template of the chart with these values."""
    given = json.dumps({**_GIVEN, **values})
    made = helm("template", "r", CHART, "--show-only", f"templates/{template}", "--values", "-", given=given)
    assert made.returncode == 0, made.stderr
    found: dict[str, Any] = yaml.safe_load(made.stdout)
    return found


def written_rules() -> dict[str, Any]:
    """Return the groups of rules, as Prometheus reads them, with the chart's thresholds; helm is not needed."""
    values = yaml.safe_load((CHART / "files" / "further-values.yaml").read_text())["alerts"]["thresholds"]
    alerts = (CHART / "files" / "alerts.yaml").read_text()
    for name, value in values.items():
        alerts = alerts.replace(f"${{{name}}}", str(value))
    texts = (alerts, (CHART / "files" / "recordings.yaml").read_text())
    return {"groups": [group for text in texts for group in yaml.safe_load(text)["groups"]]}


def rendered_rules(**thresholds: float | None) -> dict[str, Any]:
    """Return the groups of alerts, as Prometheus reads them, that helm makes of the chart."""
    alerts = {"enabled": True, "runbookUrl": RUNBOOK, "thresholds": thresholds}
    spec: dict[str, Any] = render("prometheusrule.yaml", alerts=alerts)["spec"]
    return spec


def nearest_aggregations(expression: str) -> dict[str, str]:
    """Return what each series of ours is aggregated by first, by its name and where it stands; empty: by nothing."""
    found = {}
    for series in re.finditer(r"\b(?:inference_logging|gen_ai|http_server)[\w:]+(?=\{)", expression):
        depth, nearest = 0, ""
        for at in range(series.start() - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(expression[at], 0)
            aggregation = re.search(r"\b(?:sum|max|min|avg|count)(?: by \([^)]*\))? ?$", expression[:at])
            if depth < 0 and expression[at] == "(" and aggregation:
                nearest = aggregation[0]
                break
            depth = max(depth, 0)
        found[f"{series[0]} at {series.start()}"] = nearest
    return found


@dataclass(frozen=True)
class Target:
    """What is scraped, under which labels; in a cluster the operator adds them."""

    port: int
    container: str
    namespace: str
    service: str
    pod: str

    def add_to(self, directory: Path) -> None:
        """Have it scraped by the Prometheus that looks for its targets there."""
        labels = {"namespace": self.namespace, "service": self.service, "pod": self.pod, "container": self.container}
        content = [{"targets": [f"127.0.0.1:{self.port}"], "labels": labels}]
        written = directory / f"{self.pod}-{self.container}-{self.port}.new"
        written.write_text(json.dumps(content))
        written.rename(written.with_suffix(".json"))


@dataclass(frozen=True)
class Prometheus:
    """A server that scrapes the targets in a directory."""

    client: httpx.Client
    targets: Path

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression gives now; an answer other than success fails the test."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def ask(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer; one other than success fails the test."""
        # A question about all panels is too long for a URL.
        answer = self.client.request("POST" if parameters else "GET", f"/api/v1/{path}", data=parameters).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with what became of them."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def is_up(self, targets: int) -> bool:
        """Return whether it answers and has scraped so many targets without an error."""
        with contextlib.suppress(httpx.TransportError, ValueError):
            return len(self.query("up == 1")) == targets
        return False


@contextlib.contextmanager
def scraping(
    directory: Path, targets: Sequence[Target], rules: dict[str, Any], interval: str = "1s"
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the targets each ``interval`` and evaluates the rules once a second."""
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
    discovered = directory / "targets"
    discovered.mkdir()
    for target in targets:
        target.add_to(discovered)
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        # What cAdvisor reports has the labels of each container.
        "scrape_configs": [
            {"job_name": "pods", "honor_labels": True, "file_sd_configs": [{"files": [f"{discovered}/*.json"]}]}
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    command = [
        installed("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--web.listen-address={address}",
    ]
    command += [f"--storage.tsdb.path={directory / 'tsdb'}", "--log.level=error", "--enable-feature=exemplar-storage"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            with httpx.Client(base_url=f"http://{address}", timeout=120) as client:
                running = Prometheus(client, discovered)
                wait_until(lambda: running.is_up(len(targets)), "all targets to be scraped")
                yield running
        finally:
            process.terminate()
            process.wait(60)
