"""``server.started``: one record per process that serves, with what it runs.

It is made when the middleware or a model instance opens, once for each open logger. A field whose value is not known is
left out. Of an engine's arguments only those in a list are taken: a list of what is secret would miss the next one.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inference_logging.record.config import Config
    from inference_logging.record.logger import Logger

FIELDS: Final = (
    "server.name",
    "server.version",
    "process.runtime.name",
    "process.runtime.version",
    "telemetry.distro.name",
    "telemetry.distro.version",
    "framework.versions",
    "configuration.digest",
    "engine.name",
    "engine.version",
    "model.name",
    "model.version",
    "model.revision",
    "model.digest",
    "model.dtype",
    "model.quantization",
    "model.max_tokens",
    "engine.parallelism",
    "engine.arguments",
)
"""The fields of the record, in their order."""

_SERVERS: Final = (
    # The process manager before the server that it runs; module, distribution.
    ("gunicorn.arbiter", "gunicorn"),
    ("uvicorn.server", "uvicorn"),
    ("hypercorn.run", "hypercorn"),
    ("granian.server", "granian"),
    ("daphne.server", "daphne"),
)
_FRAMEWORKS: Final = (
    "starlette",
    "fastapi",
    "litestar",
    "quart",
    "django",
    "uvloop",
    "httptools",
    "torch",
    "transformers",
)
_DISTRIBUTION: Final = "inferlog"
_VERSION_LINE: Final = re.compile(r"^Version: *(\S+)$", re.MULTILINE)


def record_start(logger: Logger, reported: Mapping[str, object] | None = None) -> bool:
    """Make the record of this process, unless ``logger`` has one; return whether it was accepted.

    ``reported`` has fields by name that the caller knows: those of an engine or a model.
    """
    if logger.config.enabled == "off" or logger.config.server_record == "off" or logger.has_start_record:
        return False
    logger.has_start_record = True
    known = {**_process(), **_server(), "configuration.digest": configuration_digest(logger.config), **(reported or {})}
    try:
        fields = [name for name in FIELDS if name in known]
        emit = logger.event("server.started", fields)
    except ValueError as error:  # an application has an event of this name, with other fields
        sys.stderr.write(f"inference_logging: no server.started record was written: {error}\n")
        return False
    return emit(*(known[name] for name in fields))


def configuration_digest(config: Config) -> str:
    """Return ``sha256:…`` of the whole configuration as JSON. No parameter is a secret: keys are in files."""
    values = config.model_dump(mode="json", exclude={"config_file"})
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _process() -> dict[str, object]:
    versions = {name: version for name in _FRAMEWORKS if name in sys.modules and (version := _version(name))}
    known = {
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
        "telemetry.distro.name": _DISTRIBUTION,
        "telemetry.distro.version": _version(_DISTRIBUTION),
        "framework.versions": versions or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _server() -> dict[str, object]:
    for module, name in _SERVERS:
        if module in sys.modules:
            known: dict[str, object] = {"server.name": name, "server.version": _version(name)}
            return {field: value for field, value in known.items() if value is not None}
    return {}


def _version(distribution: str) -> str | None:
    from importlib import metadata  # from 3.12 on it imports `inspect`, which no import of the middleware needs

    try:
        described = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    # Of what a distribution says of itself one line is needed; `version` parses all of it, long description included.
    found = _VERSION_LINE.search(described.read_text("METADATA") or "")
    return found[1] if found else described.version
