"""`inference-logging config`: the values in effect and their origins, checks and differences of files, their schema."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from inference_logging._native import sampling_threshold
from inference_logging.cli.main import FAILED, Group
from inference_logging.cli.options import CONFIG, SERVICE_NAME, examples, not_a
from inference_logging.errors import ConfigError
from inference_logging.record.config import ENV_PREFIX, FILE_VERSION, Config, FileConfig, reference
from inference_logging.record.config.difference import Difference
from inference_logging.record.config.fields import GROUP
from inference_logging.record.config.schema import file_schema


@click.group("config", cls=Group)
def command() -> None:
    """Show, check and describe the configuration."""


@command.command(
    epilog=examples(
        "inference-logging config show",
        "inference-logging config show --changed",
        "inference-logging config show --config logging.yaml --set sample_ratio=0.1",
        "INFERENCE_LOGGING_LEVEL=DEBUG inference-logging config show --json",
    )
)
@CONFIG
@click.option("--file", "config_file", type=click.Path(path_type=Path), hidden=True)
@SERVICE_NAME
@click.option("--changed", is_flag=True, help="Only values that are not the default.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter, as by keyword.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML.")
def show(
    config_file: Path | None, service_name: str | None, changed: bool, settings: tuple[str, ...], as_json: bool
) -> None:
    """Show each value in effect here and its origin: keyword, environment, file or default.

    The YAML is itself a valid configuration file, with derived values as comments and expert parameters in the group
    `advanced`.
    """
    given = {"config_file": config_file, "service_name": service_name}
    values = {name: value for name, value in given.items() if value is not None}
    values |= dict(_pair(setting) for setting in settings)
    config, origins = Config(**values), Config.origins(**values)
    if changed:
        origins = {name: origin for name, origin in origins.items() if origin != "default"}
    follows = {} if changed else derived(config)
    click.echo(_as_json(config, origins, follows) if as_json else _as_yaml(config, origins, follows))


@command.command(
    epilog=examples(
        "inference-logging config check logging.yaml",
        "INFERENCE_LOGGING_SAMPLE_RATIO=0.25 inference-logging config check",
    )
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@CONFIG
def check(file: Path | None, config_file: Path | None) -> None:
    """Check FILE (or --config's) by itself; without one, what the environment and the file it names give.

    Exit code: 1 with one line per problem, naming parameter, value and line of the file.
    """
    if file is not None and config_file is not None:
        raise click.UsageError("FILE and --config exclude each other")
    file = file if file is not None else config_file
    if file is not None and not file.is_file():
        raise click.UsageError(not_a("file", file))
    values = {"config_file": file} if file else {}
    checked = FileConfig if file else Config
    try:
        origins = checked.origins(**values)
    except ConfigError as error:
        for problem in _located(error, file if file is not None else _named_by_environment()):
            click.echo(problem)
        raise click.exceptions.Exit(FAILED) from None
    count = sum(origin not in ("default", "keyword") for origin in origins.values())
    where = str(file) if file else "environment and file"
    click.echo(f"{where}: valid, {count} of {len(origins)} parameters set")


@command.command(
    epilog=examples(
        "inference-logging config diff logging.yaml new.yaml || echo 'they differ'",
        "inference-logging config diff logging.yaml new.yaml --markdown > change.md || echo 'they differ'",
    )
)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--markdown", "as_markdown", is_flag=True, help="A table, for the review of the change.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of words.")
def diff(old: Path, new: Path, as_markdown: bool, as_json: bool) -> None:
    """Say in words what differs between the files OLD and NEW, each by itself, with defaults filled in.

    A parameter that one file omits and the other sets to its default does not differ. Exit code: 1 if one differs.
    """
    if as_markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    for file in (old, new):
        if not file.is_file():
            raise click.UsageError(not_a("file", file))
        try:
            FileConfig.origins(config_file=file)
        except ConfigError as error:
            raise ConfigError(_located(error, file)) from None
    difference = Difference.between(old, new)
    if as_json:
        click.echo(json.dumps(difference.as_json(), indent=2, ensure_ascii=False))
    else:
        click.echo(difference.markdown().rstrip("\n") if as_markdown else difference.words())
    if difference.changes:
        raise click.exceptions.Exit(FAILED)


@command.command(epilog=examples("inference-logging config schema > logging.schema.json"))
def schema() -> None:
    """Print the JSON schema of configuration files: each parameter's meaning, unit, limits and default."""
    click.echo(json.dumps(file_schema(), indent=2, ensure_ascii=False))


@command.command(epilog=examples("inference-logging config docs > parameters.md"))
def docs() -> None:
    """Print the reference of all parameters as Markdown."""
    click.echo(reference.markdown(), nl=False)


def derived(config: Config) -> dict[str, Any]:
    """Return the derived values: thresholds, limits, the directory of the queues."""
    threshold, th, count = sampling_threshold(config.sample_ratio, config.sample_precision)
    return {
        "resolved_queue_directory": str(config.resolved_queue_directory),
        "overflow_info_bytes": int(config.queue_bytes * config.overflow_info_ratio),
        "health_clear_records": int(config.health_backlog_records * config.health_clear_ratio),
        "sample_threshold": threshold,
        "sample_th": th,
        "sample_adjusted_count": count,
        "sample_routes_th": {
            route: sampling_threshold(ratio, config.sample_precision)[1] for route, ratio in config.sample_routes
        },
    }


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise click.BadParameter(f"{setting!r}: must be NAME=VALUE", param_hint="--set")
    return name, value


def _named_by_environment() -> Path | None:
    name = os.environ.get(f"{ENV_PREFIX}CONFIG_FILE")
    return Path(name).expanduser() if name else None


def _located(error: ConfigError, path: Path | None) -> list[str]:
    """Return the problems, each on one line and with the place of its parameter in the file."""
    lines = _Lines(path)
    return [lines.located(" ".join(problem.split())) for problem in error.problems]


class _Lines:
    """The lines of a configuration file on which its parameters stand."""

    def __init__(self, path: Path | None) -> None:
        """Read the lines; a file that is no YAML mapping has none."""
        self._path, self._of = path, dict(_lines(path))

    def located(self, problem: str) -> str:
        """Return a problem, prefixed with file and line if its parameter is in the file."""
        name = re.match(r"[\w.]+", problem)
        is_elsewhere = "(environment " in problem or "(keyword)" in problem
        line = self._of.get(name[0]) if name is not None and not is_elsewhere else None
        return problem if line is None else f"{self._path}:{line}: {problem}"


def _lines(path: Path | None) -> Iterator[tuple[str, int]]:
    """Yield each parameter with its line: first those of the group, by both of their names, then the others."""
    try:
        node = yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader) if path is not None else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    groups = [value for key, value in pairs if key.value == GROUP and isinstance(value, yaml.MappingNode)]
    for key, _ in (pair for group in groups for pair in group.value):
        yield f"{GROUP}.{key.value}", key.start_mark.line + 1
        yield str(key.value), key.start_mark.line + 1
    for key, _ in pairs:
        yield str(key.value), key.start_mark.line + 1


def _as_json(config: Config, origins: dict[str, str], follows: dict[str, Any]) -> str:
    written = config.model_dump(mode="json")
    parameters = {
        parameter.name: {
            "value": written[parameter.name],
            "unit": parameter.unit,
            "origin": origins[parameter.name],
        }
        for parameter in Config.describe()
        if parameter.name in origins
    }
    return json.dumps(
        {"parameters": parameters, "derived": follows},
        indent=2,
        ensure_ascii=False,
    )


def _as_yaml(config: Config, origins: dict[str, str], follows: dict[str, Any]) -> str:
    lines = [(f"version: {FILE_VERSION}", "")]
    written = config.model_dump(mode="json")
    shown = [parameter for parameter in Config.describe() if parameter.name in origins]
    for advanced, parameters in itertools.groupby(shown, key=lambda parameter: parameter.advanced):
        lines += [(f"{GROUP}:", "")] if advanced else []
        for name in (parameter.name for parameter in parameters):
            # A file can't name another file.
            before = "  " if advanced else "# " if name == "config_file" else ""
            lines.append((before + _line(name, written[name]), origins[name]))
    lines += [(f"# {_line(name, value)}", "derived") for name, value in follows.items()]
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line:<{width}}  # {origin}" if origin else line for line, origin in lines)


def _line(name: str, value: Any) -> str:
    """Return one parameter as one line of YAML."""
    return (
        f"{name}: "
        + yaml.safe_dump(value, default_flow_style=True, width=1 << 20, sort_keys=False).removesuffix("...\n").strip()
    )
