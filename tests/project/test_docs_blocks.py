"""Every block of JSON, Python, TOML and YAML of every page is read as what it is; `test_readme.py` runs some."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inference_logging import Config
from inference_logging.read.export.statement import Books, Requests, Statement
from inference_logging.read.segments.columns import HEAD, REQUESTS
from inference_logging.record.config.schema import file_schema
from inference_logging.record.integrations.vllm.records import REQUEST_FIELDS
from inference_logging.segments import Segment
from inference_logging.ship.s3.place import JSON_LINES, hive, manifest_key, object_key
from tests.chart.chart import CHART, LEAST, merged
from tests.kit.identity import answer, served
from tests.kit.shown import ROOT, blocks_of

# pytest asks for tomli where Python has none.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ANNOTATION = re.compile(r"inference-logging\.io/\w+")
OPTION = re.compile(r"^[ -]*([\w.]+): ", re.MULTILINE)
FIELDS = {*HEAD, *REQUESTS, *REQUEST_FIELDS}
"""Names that a request's record can have."""
PART = re.compile(r'"([\w.]+)": ')


@pytest.mark.parametrize(("page", "_language", "code"), list(blocks_of("python")))
def test_a_block_of_python_imports_what_is_there_and_runs(page: str, _language: str, code: str, tmp_path: Path) -> None:
    for node in ast.walk(ast.parse(code, page)):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if importlib.util.find_spec(str(module).partition(".")[0]) is None and module != "app":
                pytest.skip(f"{module} is not installed")
    blocks = [other for place, _, other in blocks_of("python") if place == page]
    (tmp_path / "app.py").write_text(blocks[0], encoding="utf-8")  # what later blocks import
    (tmp_path / "shown.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    command = [sys.executable, "-W", "error::DeprecationWarning:inference_logging", "shown.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_block_that_sets_fields_sets_them(keyed: Any) -> None:
    (code,) = (block for page, _, block in blocks_of("python") if page == "docs/identity.md")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        exec(code, {})
        await answer(scope, receive, send)

    record = served(keyed(), {}, app=app)
    assert (record["tenant.id"], record["enduser.id"]) == ("acme", "u-7")
    assert record["attributes"] == {"queue": "fast", "retries": 2}


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("yaml")))
def test_a_block_of_yaml_is_read_by_what_it_is_for(page: str, _language: str, text: str, tmp_path: Path) -> None:
    if "{{" in text:
        assert page == "helm/library/README.md", "tests/chart/library.py renders no other"
        return
    (read,) = yaml.safe_load_all(text)
    if isinstance(read, list):
        assert page == "docs/configuration-changes.md", "test_bench_configurations.py runs no other"
    elif "version" in read:
        is_a_configuration(text, tmp_path)
    elif "metadata" in read:
        known = set(ANNOTATION.findall((CHART / "templates" / "injection.yaml").read_text(encoding="utf-8")))
        assert set(read["metadata"]["annotations"]) <= known
    elif "components" in read:
        component = CHART / read["components"][0].removeprefix("inference-logging/helm/")
        made = yaml.safe_load((component / "kustomization.yaml").read_text(encoding="utf-8"))
        assert made["kind"] == "Component"
        assert read["images"][0]["name"] in "".join(path.read_text("utf-8") for path in component.glob("*.yaml"))
    elif "dependencies" in read:
        (chart,) = read["dependencies"]
        own = yaml.safe_load((CHART / "library" / "Chart.yaml").read_text(encoding="utf-8"))
        assert (chart["name"], chart["version"]) == (own["name"], own["version"])
    elif "pipeline" in read:
        known = set(OPTION.findall((CHART / "templates" / "_fluent-bit.tpl").read_text(encoding="utf-8")))
        for part in (read["service"], *read["pipeline"]["inputs"], *read["pipeline"]["outputs"]):
            assert set(part) <= known, "what tests run with Fluent Bit"
    elif "inferenceLogging" in read:
        are_values(read["inferenceLogging"], CHART / "library")
    else:
        are_values(merged(LEAST, read), CHART)


def are_values(values: dict[str, Any], chart: Path) -> None:
    """Check values of a chart by its schema, over its defaults."""
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(merged(defaults, values), schema)


def is_a_configuration(text: str, place: Path) -> None:
    """Check a file of parameters as a server does, and by its schema as an editor does."""
    (place / "logging.yaml").write_text(text, encoding="utf-8")
    Config(config_file=place / "logging.yaml")
    jsonschema.validate(yaml.safe_load(text), file_schema())


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("json")))
def test_a_block_of_json_is_read_by_what_it_is_for(page: str, _language: str, text: str, tmp_path: Path) -> None:
    try:
        read = [json.loads(text)]
    except json.JSONDecodeError:  # else it has a record in each line
        read = [json.loads(line) for line in text.splitlines()]
    assert read
    for one in read:
        if one.get("event_name") == "request":
            assert set(one) <= FIELDS, page
        if "queue_directory" in one:
            is_a_configuration(text, tmp_path)


@pytest.mark.parametrize("page", ["docs/triton.md", "docs/vllm.md"])
def test_a_part_of_a_record_has_fields_of_it(page: str) -> None:
    text = shown(page)
    of_tensors = {"name", "datatype", "shape", "bytes"}
    assert set(PART.findall(text)) - of_tensors <= FIELDS
    assert len(PART.findall(text)) > 5


def shown(page: str) -> str:
    """Return the block of text of a page that has one."""
    (text,) = (block for place, _, block in blocks_of("text") if place == page)
    return text


def test_the_statement_of_an_export_has_these_words() -> None:
    requests = Requests(
        60, 55, left_out={"no_body": 5}, by_outcome={"ok": 50, "client_disconnect": 5}, stands_for=110.0
    )
    books = Books({"totals": {"accepted": 70, "written": 70}, "processes": [{"sampled_out": {"head": 58}}]})
    statement = Statement("openai-jsonl", "logs", {}, requests, books, ())
    assert shown("docs/export.md").splitlines() == statement.words()


def test_keys_of_objects_have_this_form() -> None:
    segment, manifest = (line.removeprefix("logs/") for line in shown("docs/object-storage.md").splitlines())
    assert manifest == manifest_key(segment)
    name = segment.rpartition("/")[2].replace("…", "e258c1d2b9ed4f09-000001")
    assert (parsed := Segment.parse(name.removesuffix(".zst"))) is not None, name
    of = hive(segment)
    assert object_key(parsed, of["service"], of["pod"], JSON_LINES) == segment.rpartition("/")[0] + f"/{name}"


@pytest.mark.parametrize(("page", "_language", "text"), list(blocks_of("toml")))
def test_a_block_of_toml_names_a_crate_and_its_features(page: str, _language: str, text: str) -> None:
    for name, wanted in tomllib.loads(text)["dependencies"].items():
        crate = ROOT / wanted["path"].removeprefix("../inference_logging/")
        found = tomllib.loads((crate / "Cargo.toml").read_text(encoding="utf-8"))
        assert found["package"]["name"] == name, page
        assert set(wanted["features"]) <= set(found["features"])
