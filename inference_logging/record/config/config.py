"""The one typed schema of every setting, and the only reader of the environment and of the configuration file.

A value is looked up in this order: keyword, environment (``INFERENCE_LOGGING_QUEUE_BYTES=32MiB``), YAML file, default.
Keywords and the file may have the parameters that few users set in the group ``advanced``, each also outside of it; a
``Config`` has them beside the others. A variable always names one parameter, so there the group does not exist. All
faults are reported once, at start, by parameter and value: a mistyped name that silently means "the default" would be
found only when records are missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from inference_logging._native import Settings
from inference_logging.errors import ConfigError
from inference_logging.record.config import problems
from inference_logging.record.config.fields import GROUP, OptionalPath, parameter
from inference_logging.record.config.parameters.audit import AuditParameters
from inference_logging.record.config.parameters.engines import EngineParameters, TritonParameters
from inference_logging.record.config.parameters.output import ResourceParameters, SegmentParameters, SinkParameters
from inference_logging.record.config.parameters.queue import ControlParameters, ListenerParameters, QueueParameters
from inference_logging.record.config.parameters.request import (
    IdentityParameters,
    RequestParameters,
    SamplingParameters,
    TraceParameters,
)
from inference_logging.record.config.parameters.serving import HealthParameters, MetricsParameters
from inference_logging.record.config.parameters.shipping import ShippingParameters
from inference_logging.record.config.parameters.texts import CaptureParameters, RedactionParameters
from inference_logging.record.settings import as_json, settings

ENV_PREFIX = "INFERENCE_LOGGING_"
FILE_VERSION = 1

# Kubernetes gives each pod variables for each Service of its namespace. A Service called inference-logging (or
# inference-logging-anything) must not stop the server, so these names are known not to be ours.
_SERVICE_LINK = re.compile(r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)")


class Parameter(NamedTuple):
    """One setting as the documentation shows it."""

    name: str
    type: str
    default: Any
    unit: str
    meaning: str
    allowed: str
    advanced: bool


class Config(
    AuditParameters,
    ControlParameters,
    HealthParameters,
    TraceParameters,
    EngineParameters,
    TritonParameters,
    MetricsParameters,
    CaptureParameters,
    RedactionParameters,
    IdentityParameters,
    RequestParameters,
    SamplingParameters,
    ShippingParameters,
    ResourceParameters,
    SegmentParameters,
    SinkParameters,
    ListenerParameters,
    QueueParameters,
):
    """Every setting, immutable and checked. ``Config()`` reads the environment and the file; keywords take precedence.

    ``Config(advanced={"flush_records": 1000})`` is ``Config(flush_records=1000)``; both together are refused.
    Raises ``ConfigError`` naming each wrong or unknown parameter, its value and what is allowed.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=False
    )

    config_file: OptionalPath = parameter(
        None,
        "YAML file with the other parameters; it carries `version: 1` and can't name another file. Empty = no file. An "
        "unreadable file is an error at start.",
        allowed="the path of a readable file",
    )

    def __init__(self, **values: Any) -> None:
        values = self._keywords(values)
        try:
            super().__init__(**self._sources(values))
        except ValidationError as error:
            found = problems.sentences(
                error, type(self).model_fields, lambda name, got: self._as_written(name, got, values)
            )
            raise ConfigError(found) from None

    @classmethod
    def _sources(cls, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return each value from the strongest source that has it."""
        values = {**cls._variables(), **keywords}
        path = values.get("config_file")
        in_file = _read_file(Path(path).expanduser()) if path and isinstance(path, str | Path) else {}
        return in_file | values

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool(cls, value: Any, info: ValidationInfo) -> Any:
        # Python counts True as the number 1, but `flush_records: true` is a mistake.
        if isinstance(value, bool) and info.field_name != "enabled":
            raise ValueError("no other parameter is true or false")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Config:
        Settings(as_json(self))
        return self

    @property
    def resolved_queue_directory(self) -> Path:
        """The directory of the queues: the configured one, or the default for this user, service and configuration."""
        return self.queue_directory if self.queue_directory is not None else settings(self).queue_directory

    @property
    def resolved_ship_name(self) -> str:
        """The name of the shipper: the configured one, or the kind of its destination; empty without one."""
        return self.ship_name or (self.ship_to or "").partition("://")[0].partition("+")[0]

    @property
    def resolved_audit_directory(self) -> Path:
        """The directory of the audit lane's output: the configured one, or ``audit`` below ``directory``."""
        return self.audit_directory if self.audit_directory is not None else self.directory / "audit"

    @classmethod
    def origins(cls, **values: Any) -> dict[str, str]:
        """Return where ``cls(**values)`` takes each parameter from: keyword, environment NAME, file PATH or default.

        Raises ``ConfigError`` where ``cls(**values)`` does.
        """
        path = cls(**values).config_file
        values = cls._keywords(values)
        in_file = _read_file(path) if path else {}
        variables = cls._variables()

        def origin(name: str) -> str:
            if name in values:
                return "keyword"
            if name in variables:
                return f"environment {ENV_PREFIX}{name.upper()}"
            return f"file {path}" if name in in_file else "default"

        return {name: origin(name) for name in cls.model_fields}

    @classmethod
    def _keywords(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return without_group(values, cls.model_fields, "keyword")

    @classmethod
    def _variables(cls) -> dict[str, str]:
        return _environment()

    @classmethod
    def _as_written(cls, name: str, checked: Any, keywords: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the origin of a value and its original form; for the file only the checked value is known."""
        if name in keywords:
            return "keyword", keywords[name]
        variables = cls._variables()
        return (f"environment {ENV_PREFIX}{name.upper()}", variables[name]) if name in variables else ("file", checked)

    @classmethod
    def describe(cls) -> list[Parameter]:
        """Return each parameter as the documentation has it and in its order: those of the group ``advanced`` last."""
        described = [
            Parameter(
                name=name,
                type=problems.type_name(field),
                default=field.default,
                unit=problems.extra(field, "unit"),
                meaning=field.description or "",
                allowed=problems.allowed(field),
                advanced=is_advanced(field),
            )
            for name, field in cls.model_fields.items()
        ]
        return sorted(described, key=lambda parameter: parameter.advanced)


class FileConfig(Config):
    """The content of one file by itself: the environment, which would hide its values, is not read."""

    model_config = ConfigDict(defer_build=True)  # most processes never make one

    @classmethod
    def _variables(cls) -> dict[str, str]:
        return {}


def _environment() -> dict[str, str]:
    names = ((name, name.removeprefix(ENV_PREFIX)) for name in os.environ if name.startswith(ENV_PREFIX))
    found = {rest.lower(): os.environ[name] for name, rest in names if not _SERVICE_LINK.fullmatch(rest)}
    if GROUP in found:
        variable = f"{ENV_PREFIX}{GROUP.upper()}"
        found[GROUP] = problems.Sentence(
            f"{GROUP}={problems.shown(found[GROUP])} (environment {variable}): must not be set; each parameter of the "
            f"group has a variable of its own, such as {ENV_PREFIX}FLUSH_RECORDS"
        )
    return found


def _read_file(path: Path) -> dict[str, Any]:
    import yaml  # only where there is a file

    from inference_logging.record.config import yaml_file

    try:
        content = yaml_file.read(path)
    except OSError as error:
        return _unusable(path, f"can't be read: {error.strerror or error}")
    except (ValueError, yaml.YAMLError) as error:
        return _unusable(path, "can't be read: " + " ".join(str(error).split()))
    if not isinstance(content, dict):
        return _unusable(path, "must be a mapping of parameters to values")
    version = content.pop("version", None)
    if version is not None and (type(version) is not int or version != FILE_VERSION):
        return _unusable(path, f"version={version!r}: must be {FILE_VERSION}")
    wrong = {} if version is not None else _unusable(path, f"must have a line version: {FILE_VERSION}")
    if "config_file" in content:
        return _unusable(path, "config_file: a file can't name another file")
    named = {str(name): value for name, value in content.items()}
    parameters = without_group(named, Config.model_fields, "file")
    return wrong | {name: _meant(name, value) for name, value in parameters.items()}


def _unusable(path: Path, reason: str) -> dict[str, Any]:
    # A key that no field has, so that no stronger source hides it and the schema refuses it.
    return {"<file>": problems.Sentence(f"config_file={str(path)!r}: {reason}")}


def _meant(name: str, value: Any) -> Any:
    """Return the meaning of a value of the file; text instead of a number is refused, as the JSON schema does."""
    field = Config.model_fields.get(name)
    if field is None:
        return value
    # YAML reads `chunks: off` as false, which is never meant.
    if value is False and "off" in get_args(field.annotation):
        return "off"
    if isinstance(value, str) and field.annotation in (int, float) and not problems.is_size(field):
        form = ", without quotes" if problems.is_number(value) else ""
        return problems.Sentence(f"{name}={value!r} (file): must be {problems.allowed(field)}{form}")
    # Only a variable has no other form for several values than one text.
    kind = dict if problems.is_mapping(field) else list
    if problems.is_list(field) and not isinstance(value, kind):
        word = "mapping" if kind is dict else "list"
        return problems.Sentence(f"{name}={value!r} (file): must be a {word}: {problems.allowed(field)}")
    return value


def is_advanced(field: FieldInfo) -> bool:
    """Return whether a field belongs to the group."""
    notes = field.json_schema_extra
    return isinstance(notes, dict) and bool(notes["advanced"])


def without_group(values: Mapping[str, Any], fields: Mapping[str, FieldInfo], origin: str) -> dict[str, Any]:
    """Return the parameters of one source with those of its group beside the others.

    A fault of the group becomes a sentence under a key that no field has, so that it is reported with the rest.
    """
    flat = {name: value for name, value in values.items() if name != GROUP}
    if GROUP not in values:
        return flat
    group = values[GROUP]
    if not isinstance(group, Mapping):
        problem = f"{GROUP}={problems.shown(group)} ({origin}): must be a mapping of advanced parameters to values"
        return flat | {f"<{GROUP} {origin}>": problems.Sentence(problem)}
    inside = {str(name): value for name, value in group.items()}
    wrong = dict(_wrong(inside, flat, fields, origin))
    found = {f"<{GROUP}.{name} {origin}>": problems.Sentence(problem) for name, problem in wrong.items()}
    return flat | {name: value for name, value in inside.items() if name not in wrong} | found


def _wrong(
    inside: Mapping[str, Any], outside: Mapping[str, Any], fields: Mapping[str, FieldInfo], origin: str
) -> Iterator[tuple[str, str]]:
    """Yield the names in a group that do not belong there, each with a sentence."""
    for name, value in inside.items():
        given = f"{GROUP}.{name}={problems.shown(value)}"
        if name not in fields:
            wrong = problems.unknown(name, fields, lambda near: _place(near, fields))
            yield name, f"{given} ({origin}): {wrong}"
        elif not is_advanced(fields[name]):
            yield name, f"{given} ({origin}): must stand outside of the group, as {name}"
        elif name in outside:
            yield (
                name,
                f"{given} ({origin}): must be given once, but {name}={problems.shown(outside[name])} is there too",
            )


def _place(name: str, fields: Mapping[str, FieldInfo]) -> str:
    return f"{GROUP}.{name}" if is_advanced(fields[name]) else f"{name}, outside of the group"
