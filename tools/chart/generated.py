"""What of the chart is made: schema and defaults of its values from the package, the dashboard from tables of panels.

``python -m tools.chart.generated`` writes all; a test fails while one is not what its source says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from inference_logging import Config
from inference_logging.record.config.schema import file_schema
from tools.chart.dashboard import written
from tools.chart.values_schema import Schema, library, said, values

CHART: Final = Path(__file__).parents[2] / "helm"
COUNTED_WITH: Final = (
    "audit",
    "audit_queue_bytes",
    "audit_sink",
    "compress",
    "drain_deadline_s",
    "health_path",
    "in_flight_slots",
    "liveness_path",
    "max_record_bytes",
    "queue_bytes",
    "rotate_bytes",
    "service_name",
    "sink",
)
COUNTED_IN_LIBRARY: Final = (
    "audit",
    "audit_queue_bytes",
    "drain_deadline_s",
    "in_flight_slots",
    "queue_bytes",
    "rotate_bytes",
)


def files() -> dict[Path, str]:
    """Return what stands in each file that is made from the package."""
    config = file_schema("#/properties/config")
    dialect = config.pop("$schema")

    def document(chart: str, schema: Schema) -> str:
        head = {"$schema": dialect, "title": f"Values of the chart {chart}"}
        return json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n"

    added = library(config["properties"])
    # References are from the root.
    definitions = {"$defs": config.pop("$defs")} if "$defs" in config else {}
    defaults = {name: Config.model_fields[name].default for name in COUNTED_WITH}
    read = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    # Null for a user is the user that the cluster gives.
    given = {name: value for name, value in read.items() if name != "podSecurityContext"}

    def table(what: str, content: Mapping[str, Any]) -> str:
        """Return a line for each name."""
        lines = "".join(f"{name}: {json.dumps(value)}\n" for name, value in content.items())
        return f"# {what}; written by `python -m tools.chart.generated`.\n{lines}"

    return {
        CHART / "values.schema.json": document("inference-logging", values(config) | definitions),
        CHART / "library" / "values.schema.json": document("inference-logging-library", added),
        CHART / "files" / "dashboard.json": written(),
        CHART / "files" / "defaults.yaml": table("The package's defaults that templates count with", defaults),
        CHART / "files" / "parameters.yaml": table("Which texts the parameters of `config` allow", said(config)),
        CHART / "files" / "values.yaml": table(
            "The defaults of values.yaml, which no template can read", _without_null(given)
        ),
        CHART / "library" / "templates" / "_defaults.tpl": _template(defaults),
    }


def _without_null(given: Any) -> Any:
    """Return values without those that stand for what the chart finds by itself."""
    if not isinstance(given, dict):
        return given
    return {name: _without_null(value) for name, value in given.items() if value is not None}


def _template(defaults: dict[str, Any]) -> str:
    """Return them for a template that has no files: that of a chart which others use."""
    head = "{{/* The package's defaults; written by `python -m tools.chart.generated`. */}}\n"
    return (
        head
        + '{{- define "inference-logging-library.defaults" -}}\n'
        + yaml.safe_dump({name: defaults[name] for name in COUNTED_IN_LIBRARY})
        + "{{- end }}\n"
    )


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")
