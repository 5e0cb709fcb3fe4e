"""`inference-logging bench --config NEW --against OLD`: the cost of a change of the configuration, as Markdown.

``CONFIG``, ``AGAINST`` and ``run`` are what the command `bench` takes from here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from inference_logging.cli.options import not_a

Command = TypeVar("Command", bound=Callable[..., Any])

SECONDS: Final = 30.0
ROUNDS: Final = 3
EXAMPLE: Final = "inference-logging bench --config new.yaml --against logging.yaml"


def _file(_context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise click.BadParameter(not_a("file", path), param=parameter)
    return path


AGAINST: Final = click.option(
    "--against", "against", metavar="OLD", type=click.Path(path_type=Path), callback=_file,
    help="The configuration file before the change.",
)  # fmt: skip
CONFIG: Final = click.option(
    "--config", "config_file", metavar="NEW", type=click.Path(path_type=Path), callback=_file,
    help="The changed configuration file; measure its cost.",
)  # fmt: skip


def run(new: Path | None, against: Path | None, seconds: float | None, rounds: int | None, *, as_json: bool) -> None:
    """Compare two files and print the result; both are read by themselves, without the environment.

    It takes ``seconds`` in all (30), in ``rounds`` processes (3).

    Raises ``UsageError`` without one of the two, ``ConfigError`` for a file that cannot be used.
    """
    from inference_logging.prove.bench.configurations import compare, markdown
    from inference_logging.record.config.difference import Difference

    if new is None or against is None:
        raise click.UsageError("--config and --against: give both, the changed file and the one before")
    difference = Difference.between(against, new)
    seconds, rounds = (SECONDS if seconds is None else seconds), (ROUNDS if rounds is None else rounds)
    try:
        comparison = compare(new, against, seconds, rounds, lambda number: _show(number, rounds))
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(
            json.dumps({**comparison.as_json(), "difference": difference.as_json()}, indent=2, ensure_ascii=False)
        )
    else:
        click.echo(markdown(comparison, difference.markdown()), nl=False)


def _show(number: int, rounds: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"round {number + 1} of {rounds}", err=True)
