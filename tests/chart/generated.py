"""What of the chart comes from the package: the schema of its values, and the defaults that its templates count with.

``python -m tests.chart.generated`` writes both; a test fails while they are not what the package says.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from inference_logging import Config
from inference_logging.schema import file_schema
from tests.chart.values_schema import values

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

# Go's regular expressions repeat at most a thousand times.
_LONG_REPETITION = re.compile(r"\^\(\?:(\[[^]]+\])\{1,(\d{4,})\}\)\$")


def files() -> dict[Path, str]:
    """Return what stands in each file that is made from the package."""
    config = _for_go(file_schema())
    dialect = config.pop("$schema")
    schema = {"$schema": dialect, "title": "Values of the chart inference-logging"}
    # References are from the root.
    definitions = {"$defs": config.pop("$defs")} if "$defs" in config else {}
    text = json.dumps(schema | values(config) | definitions, indent=1, ensure_ascii=False)
    defaults = {name: Config.model_fields[name].default for name in COUNTED_WITH}
    head = "# The package's defaults that templates count with; written by `python -m tests.chart.generated`.\n"
    return {
        CHART / "values.schema.json": f"{text}\n",
        CHART / "files" / "defaults.yaml": head + yaml.safe_dump(defaults),
    }


def _for_go(schema: Any) -> Any:
    """Return a schema whose patterns Helm can read: a long repetition is told by ``maxLength`` instead."""
    if isinstance(schema, list):
        return [_for_go(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = _LONG_REPETITION.fullmatch(pattern) if isinstance(pattern := schema.get("pattern"), str) else None
    changed = {"pattern": f"^(?:{found[1]}+)$", "maxLength": int(found[2])} if found else {}
    return {name: _for_go(part) for name, part in schema.items()} | changed


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")
