"""`inference-logging config`: what is in effect and why, whether a file is right, and the schema of such files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import yaml

from inference_logging import sampling
from inference_logging.cli.examples import examples
from inference_logging.cli.main import FAILED
from inference_logging.config import FILE_VERSION, Config, FileConfig
from inference_logging.errors import ConfigError
from inference_logging.schema import file_schema


@click.group("config")
def command() -> None:
    """Show, check and describe the configuration."""


@command.command(
    epilog=examples(
        "inference-logging config show",
        "inference-logging config show --file logging.yaml --set sample_ratio=0.1",
        "INFERENCE_LOGGING_LEVEL=DEBUG inference-logging config show --json",
    )
)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    help="YAML file, as if config_file named it.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter, as if given by keyword.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML.")
def show(file: Path | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Show each value in effect here and where it comes from: keyword, environment, file or default.

    The YAML is itself a valid configuration file; values that follow from others stand in its comments.
    Exit code: 0, or 2 if the configuration is wrong.
    """
    values = dict(_pair(setting) for setting in settings) | ({"config_file": file} if file else {})
    config, origins = Config(**values), Config.origins(**values)
    click.echo(_as_json(config, origins) if as_json else _as_yaml(config, origins))


@command.command(
    epilog=examples(
        "inference-logging config check logging.yaml",
        "INFERENCE_LOGGING_SAMPLE_RATIO=0.25 inference-logging config check",
    )
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> None:
    """Check FILE by itself; without FILE, what the environment and the file that it names make together.

    Exit code: 0 with one line if it is right; 1 with one line per problem, each naming parameter and value.
    """
    values = {"config_file": file} if file else {}
    checked = FileConfig if file else Config
    try:
        origins = checked.origins(**values)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(" ".join(problem.split()))
        raise click.exceptions.Exit(FAILED) from None
    count = sum(origin not in ("default", "keyword") for origin in origins.values())
    where = str(file) if file else "environment and file"
    click.echo(f"{where}: valid, {count} of {len(origins) - 1} parameters set")


@command.command(epilog=examples("inference-logging config schema > logging.schema.json"))
def schema() -> None:
    """Print the JSON schema of configuration files: meaning, unit, limits and default of each parameter."""
    click.echo(json.dumps(file_schema(), indent=2, ensure_ascii=False))


def derived(config: Config) -> dict[str, Any]:
    """Return the values that follow from others: thresholds, limits, the directory of the queues."""
    threshold = sampling.threshold(config.sample_ratio, config.sample_precision)
    return {
        "resolved_queue_directory": str(config.resolved_queue_directory),
        "overflow_info_bytes": int(config.queue_bytes * config.overflow_info_ratio),
        "health_clear_records": int(config.health_backlog_records * config.health_clear_ratio),
        "sample_threshold": threshold,
        "sample_th": _th(threshold),
        "sample_adjusted_count": sampling.adjusted_count(threshold),
        "sample_routes_th": {
            route: _th(sampling.threshold(ratio, config.sample_precision)) for route, ratio in config.sample_routes
        },
    }


def _th(threshold: int) -> str | None:
    """Return a threshold as tracestate has it; None where nothing is kept, which that can't say."""
    return sampling.encode_th(threshold) if threshold < sampling.NEVER else None


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise click.BadParameter(f"{setting!r}: must be NAME=VALUE", param_hint="--set")
    return name, value


def _as_json(config: Config, origins: dict[str, str]) -> str:
    written = config.model_dump(mode="json")
    units = {parameter.name: parameter.unit for parameter in Config.describe()}
    parameters = {
        name: {"value": value, "unit": units[name], "origin": origins[name]} for name, value in written.items()
    }
    return json.dumps(
        {"parameters": parameters, "derived": derived(config)},
        indent=2,
        ensure_ascii=False,
    )


def _as_yaml(config: Config, origins: dict[str, str]) -> str:
    lines = [(f"version: {FILE_VERSION}", "")]
    for name, value in config.model_dump(mode="json").items():
        # A file can't name another file.
        line = _line(name, value) if name != "config_file" else f"# {_line(name, value)}"
        lines.append((line, origins[name]))
    lines += [(f"# {_line(name, value)}", "derived") for name, value in derived(config).items()]
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line:<{width}}  # {origin}" if origin else line for line, origin in lines)


def _line(name: str, value: Any) -> str:
    """Return one parameter as one line of YAML."""
    return (
        f"{name}: "
        + yaml.safe_dump(value, default_flow_style=True, width=1 << 20, sort_keys=False).removesuffix("...\n").strip()
    )
