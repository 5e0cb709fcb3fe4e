"""The one typed schema of every setting, and the only reader of the environment and of the configuration file.

A value is looked up in this order: keyword, environment (``INFERENCE_LOGGING_QUEUE_BYTES=32MiB``), YAML file, default.
Whatever is wrong is told once, at start, all of it, by parameter and value: a mistyped name that silently means "the
default" would be found only when records are missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from inference_logging import _problems as problems
from inference_logging import sampling
from inference_logging._fields import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Directory,
    OptionalPath,
    RingBytes,
    matching,
    none_if_empty,
    parameter,
    possible_ratio,
    upper,
)
from inference_logging.errors import ConfigError

ENV_PREFIX = "INFERENCE_LOGGING_"
FILE_VERSION = 1

REQUEST_RECORD_OVERHEAD_BYTES = 4096
"""What a request record takes besides captures and timeline: ids, method, route, counters, tags."""

_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_ROUTE = re.compile(r"/[^?#\s]{0,255}", re.ASCII)

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


class Config(BaseSettings):
    """Every setting, immutable and checked. ``Config()`` reads the environment and the file; keywords go before both.

    Raises ``ConfigError`` naming each wrong or unknown parameter, its value and what is allowed.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, env_prefix=ENV_PREFIX)

    config_file: OptionalPath = parameter(
        None,
        "YAML file to read the other parameters from; it carries `version: 1`. It can't name another file. "
        "Empty = no file. A file that can't be read stops at start.",
        allowed="the path of a readable file",
    )
    service_name: Annotated[str, matching(_SERVICE_NAME)] = parameter(
        "inference",
        "Name of the service: it begins the names of segments and of the queue directory, so processes with the same "
        "name and user share one listener.",
        allowed="1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
    )
    directory: Directory = parameter(
        Path("logs"),
        "Directory of the segments; created with mode 0700 when the first one is opened. When it is full or gone, "
        "records wait in the queue, then overflow as the level says.",
        allowed="a path",
    )
    queue_directory: OptionalPath = parameter(
        None,
        "Directory of the queues, on tmpfs; created with mode 0700. Empty = "
        "/dev/shm/inference_logging-<uid>-<service_name>, or the same below the temporary directory where /dev/shm "
        "does not exist.",
        allowed="a path, or empty",
    )
    queue_bytes: RingBytes = parameter(
        16 * MIB,
        "Size of one process's queue, rounded up to a power of two and allocated at start: too little room there "
        "is an error at start. At the limit records are refused by level and counted as queue_full.",
        unit="bytes",
        limits=(64 * KIB, 4 * GIB),
    )
    max_record_bytes: Bytes = parameter(
        64 * KIB,
        "Largest record in the queue's binary form; a larger one is refused and counted as oversize. At most a "
        "quarter of queue_bytes, and room for a request record with all its captures.",
        unit="bytes",
        limits=(4 * KIB, 16 * MIB),
    )
    overflow_info_ratio: float = parameter(
        0.8,
        "Fill of the queue above which DEBUG and INFO are refused and counted, so that WARN and above still find "
        "room; 1 keeps no room for them.",
        unit="share of queue_bytes",
        limits=(0.1, 1.0),
    )
    listener: Literal["thread", "off"] = parameter(
        "thread",
        "thread: a native thread of this process can become the listener of the queue directory; off: another "
        "process listens. Without any listener the queue fills and then overflows.",
    )
    sink: Literal["file", "stdout", "null"] = parameter(
        "file",
        "Where the listener writes: segments in directory, standard output, or nowhere (for measurement; in YAML "
        "write it with quotes).",
    )
    flush_interval_s: float = parameter(
        0.5,
        "Longest time an accepted record waits in the queue for the listener to write it, unless flush_records or "
        "flush_bytes is reached earlier.",
        unit="s",
        limits=(0.01, 60.0),
    )
    flush_records: int = parameter(
        100,
        "Records waiting in the queue at which the listener writes before flush_interval_s has passed; it looks every "
        "50 ms, so that no request makes a system call to wake it.",
        unit="records",
        limits=(1, 1_000_000),
    )
    flush_bytes: Bytes = parameter(
        1 * MIB,
        "Bytes waiting in the queue at which the listener is woken before flush_interval_s has passed.",
        unit="bytes",
        limits=(4 * KIB, 64 * MIB),
    )
    rotate_bytes: Bytes = parameter(
        64 * MIB,
        "Size at which a segment is closed with its footer and the next one opened; one batch may go above it.",
        unit="bytes",
        limits=(4 * KIB, 1024 * GIB),
    )
    rotate_interval_s: float = parameter(
        3600.0,
        "Age at which a segment is closed with its footer; the next one is opened by the next record.",
        unit="s",
        limits=(1.0, 31 * 86400.0),
    )
    writeback_bytes: Bytes = parameter(
        8 * MIB,
        "Window of paced writeback: at most two windows of a segment are dirty in the page cache, then the listener "
        "(never a request) waits for the disk.",
        unit="bytes",
        limits=(64 * KIB, 1 * GIB),
    )
    drain_deadline_s: float = parameter(
        5.0,
        "Longest time a shutdown waits for the queue to be written; what is left then is counted as "
        "shutdown_deadline. 0 = one try without waiting.",
        unit="s",
        limits=(0.0, 600.0),
    )
    level: Annotated[Literal["DEBUG", "INFO", "WARN", "ERROR"], BeforeValidator(upper)] = parameter(
        "INFO",
        "Lowest severity that get_logger accepts; records below it are ignored and not counted. Request records are "
        "not affected.",
    )
    sample_ratio: Annotated[float, AfterValidator(possible_ratio)] = parameter(
        1.0,
        "Share of traces whose successful requests are recorded, decided by trace id; errors are kept regardless. "
        "0 = errors only.",
        unit="share of traces",
        allowed="0, or from 2**-56 to 1",
    )
    sample_precision: int = parameter(
        4,
        "Significant hex digits of the rejection threshold made from sample_ratio: 4 is the recommendation of "
        "OpenTelemetry, 14 is exact.",
        unit="hex digits",
        limits=(1, sampling.MAX_PRECISION),
    )
    chunks: Literal["off", "summary", "timeline", "events"] = parameter(
        "timeline",
        "What is recorded of a streamed response: off: nothing; summary: count and time to the first chunk; timeline: "
        "also the gaps between chunks; events: also one record per chunk.",
    )
    chunk_timeline_limit: int = parameter(
        256,
        "Gaps kept per request; later chunks are counted but their gaps are not kept.",
        unit="chunks",
        limits=(0, 65536),
    )
    capture_head_bytes: Bytes = parameter(
        1024,
        "First bytes of a body copied for the listener to read model, limits and usage from; they are never stored "
        "as text. 0 = off. What lies behind the cap is not seen.",
        unit="bytes",
        limits=(0, 1 * MIB),
    )
    capture_tail_bytes: Bytes = parameter(
        2048,
        "Last bytes of a body copied for the same purpose, where usage and finish reason stand. 0 = off.",
        unit="bytes",
        limits=(0, 1 * MIB),
    )
    health_path: Annotated[str | None, BeforeValidator(none_if_empty), matching(_ROUTE)] = parameter(
        "/health/logging",
        "Path that the middleware answers itself: 200, or 503 with a reason. Empty = no such route.",
        allowed="a path that begins with '/', without '?', '#' or spaces, at most 256 characters; or empty",
    )
    health_backlog_records: int = parameter(
        10_000,
        "Records waiting in the queue above which health answers 503.",
        unit="records",
        limits=(1, 1_000_000_000),
    )
    health_clear_ratio: float = parameter(
        0.5,
        "Health answers 200 again below this share of health_backlog_records, so that it doesn't flap.",
        unit="share of health_backlog_records",
        limits=(0.0, 1.0),
    )

    def __init__(self, **values: Any) -> None:
        """Look every parameter up and check it."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            found = problems.sentences(error, type(self).model_fields, lambda name, got: _as_written(name, got, values))
            raise ConfigError(found) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - replaced: it passes over unknown variables
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not offered: one file format is enough
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not offered: there are no secrets here
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Name the sources, the strongest first."""
        return init_settings, InitSettingsSource(settings_cls, _environment()), _FileSource(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool(cls, value: Any) -> Any:
        # Python counts True as the number 1, but `flush_records: true` is a mistake.
        if isinstance(value, bool):
            raise ValueError("no parameter is true or false")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Config:
        largest = self.queue_bytes // 4
        request = REQUEST_RECORD_OVERHEAD_BYTES + 4 * self.chunk_timeline_limit
        request += 2 * (self.capture_head_bytes + self.capture_tail_bytes)
        found = []
        if self.max_record_bytes > largest:
            found.append(
                f"max_record_bytes={self.max_record_bytes}: must be at most {largest}, a quarter of "
                f"queue_bytes={self.queue_bytes}"
            )
        if self.max_record_bytes < request:
            found.append(
                f"max_record_bytes={self.max_record_bytes}: must be at least {request} to hold a request record with "
                f"chunk_timeline_limit={self.chunk_timeline_limit}, capture_head_bytes={self.capture_head_bytes} and "
                f"capture_tail_bytes={self.capture_tail_bytes}; raise it or lower those"
            )
        if found:
            raise ValueError("\n".join(found))
        return self

    @property
    def resolved_queue_directory(self) -> Path:
        """The directory of the queues: the configured one, or the default for this user and service."""
        if self.queue_directory is not None:
            return self.queue_directory
        name = f"inference_logging-{os.getuid()}-{self.service_name}"
        memory = Path("/dev/shm")
        if memory.is_dir():
            return memory / name
        import tempfile  # only where there is no /dev/shm, and it costs milliseconds

        return Path(tempfile.gettempdir()) / name

    @classmethod
    def describe(cls) -> list[Parameter]:
        """Return name, type, default, unit, meaning and allowed values of each parameter, in the order of the docs."""
        return [
            Parameter(
                name=name,
                type=problems.type_name(field),
                default=field.default,
                unit=problems.extra(field, "unit"),
                meaning=field.description or "",
                allowed=problems.allowed(field),
            )
            for name, field in cls.model_fields.items()
        ]


class _FileSource(InitSettingsSource):
    """The weakest source: the YAML file that keyword or environment name."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, {})

    def __call__(self) -> dict[str, Any]:
        path = self.current_state.get("config_file")
        return _read_file(Path(path).expanduser()) if path and isinstance(path, str | Path) else {}


def _environment() -> dict[str, str]:
    names = ((name, name.removeprefix(ENV_PREFIX)) for name in os.environ if name.startswith(ENV_PREFIX))
    return {rest.lower(): os.environ[name] for name, rest in names if not _SERVICE_LINK.fullmatch(rest)}


def _as_written(name: str, checked: Any, keywords: Mapping[str, Any]) -> tuple[str, Any]:
    """Return where a value came from and how it stood there; of the file only what was checked is known."""
    if name in keywords:
        return "keyword", keywords[name]
    environment = _environment()
    return (f"environment {ENV_PREFIX}{name.upper()}", environment[name]) if name in environment else ("file", checked)


def _read_file(path: Path) -> dict[str, Any]:
    import yaml  # only where there is a file

    try:
        content = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, yaml.YAMLError) as error:
        return _unusable(path, "can't be read: " + " ".join(str(error).split()))
    if not isinstance(content, dict):
        return _unusable(path, "must be a mapping of parameters to values")
    version = content.pop("version", None)
    if type(version) is not int or version != FILE_VERSION:
        return _unusable(path, f"version={version!r}: must be {FILE_VERSION}")
    if "config_file" in content:
        return _unusable(path, "config_file: a file can't name another file")
    return {str(name): _unquoted(str(name), value) for name, value in content.items()}


def _unusable(path: Path, reason: str) -> dict[str, Any]:
    # A key that no field has, so that no stronger source hides it and the schema refuses it.
    return {"<file>": problems.Sentence(f"config_file={str(path)!r}: {reason}")}


def _unquoted(name: str, value: Any) -> Any:
    # YAML reads `chunks: off` as false, which nobody means.
    field = Config.model_fields.get(name)
    return "off" if value is False and field is not None and "off" in get_args(field.annotation) else value
