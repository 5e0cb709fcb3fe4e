"""`inference-logging ctl`: change level, sampling and capture of running servers, for a while, each change on record.

The servers map one page of the queue directory; a change is one store to it, seen by every process with its next
request. Nothing is sent to them, and none has to run: what is in force when one starts is in force for it.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click

from inference_logging import cleaning, origin
from inference_logging._native import RuntimeControl
from inference_logging.cli.examples import examples
from inference_logging.cli.main import Group
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, queue_directory_of
from inference_logging.cli.times import duration_s
from inference_logging.config import Config
from inference_logging.logger import SEVERITIES

LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR")
CHUNKS: Final = ("off", "summary", "timeline", "events")
LONGEST_ERRORS: Final = 1_000_000


class Opened:
    """The control of one queue directory, and the configuration it is found by; each is opened when it is asked for."""

    def __init__(self, **given: Any) -> None:
        """Keep what the command line gives."""
        self._given = given

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises ``ConfigError``."""
        return configuration(**self._given)

    @cached_property
    def directory(self) -> Path:
        """The queue directory. Raises ``ConfigError``, and ``UsageError`` if there are several."""
        return queue_directory_of(self.config)

    @property
    def directories(self) -> list[Path]:
        """The queue directories that the command line names, or all of this user's."""
        if any(self._given[name] is not None for name in ("config_file", "queue_directory")):
            return [self.directory]
        return origin.queue_directories(self._given["service_name"])

    @cached_property
    def control(self) -> RuntimeControl:
        """The control. Raises ``ClickException`` naming the queue directory."""
        directory = self.directory
        try:
            return RuntimeControl(directory)
        except FileNotFoundError:
            raise click.UsageError(
                f"queue_directory={directory}: there is none; no server of this configuration has run. "
                "--config, --service-name or --queue-directory name another one"
            ) from None
        except OSError as error:
            raise click.ClickException(f"queue_directory={directory}: {error}") from None


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        seconds = duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    limit_s = context.find_object(Opened).config.control_limit_s  # type: ignore[union-attr]  # made by the group
    if not 0 < seconds <= limit_s:
        raise click.BadParameter(f"{value!r}: must be above 0 and at most control_limit_s={limit_s:g}", param=parameter)
    return seconds


_FOR = click.option(
    "--for",
    "for_s",
    default="15m",
    show_default=True,
    metavar="TIME",
    callback=_seconds,
    help="How long: 90s, 15m, 2h. At most control_limit_s.",
)


@click.group(
    "ctl",
    cls=Group,
    epilog=examples(
        "inference-logging ctl level DEBUG --for 5m",
        "inference-logging ctl sample-ratio 0.1",
        "inference-logging ctl capture --route '/v1/*' --for 2m",
        "inference-logging ctl --service-name chat capture --errors 50",
        "inference-logging ctl disable --for 10m",
        "inference-logging ctl show --json",
        "inference-logging ctl reset",
        "inference-logging ctl clean",
    ),
)
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
@click.pass_context
def command(
    context: click.Context, config_file: Path | None, service_name: str | None, queue_directory: Path | None
) -> None:
    """Change level, sampling and capture while the servers run, or switch it all off, for a while.

    The servers are found as they find each other: by the queue directory of their configuration, which is read here
    from the same environment and file, or by --service-name alone where that has one. Only the user to whom that
    directory belongs can change anything (its mode is 0700). Each change is on record (control.changed) before it takes
    effect, in all processes at once.
    """
    context.obj = Opened(config_file=config_file, service_name=service_name, queue_directory=queue_directory)


@command.command(epilog=examples("inference-logging ctl disable --for 10m"))
@_FOR
@click.pass_obj
def disable(opened: Opened, for_s: float) -> None:
    """Record nothing: requests pass through, loggers and events do nothing. The audit lane goes on."""
    _change(opened, "enabled", "off", for_s)


@command.command(epilog=examples("inference-logging ctl enable"))
@click.pass_obj
def enable(opened: Opened) -> None:
    """Record again what disable has switched off, before its time is over."""
    ended = _on_record(lambda: opened.control.enable(_who()))
    click.echo(f"ended: {ended}")


@command.command(epilog=examples("inference-logging ctl level DEBUG --for 5m"))
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@_FOR
@click.pass_obj
def level(opened: Opened, level: str, for_s: float) -> None:
    """Accept application records (get_logger) from LEVEL on.

    What the standard library's own loggers leave out before their handlers is not affected.
    """
    _change(opened, "level", SEVERITIES[level], for_s)


@command.command("sample-ratio", epilog=examples("inference-logging ctl sample-ratio 0.1 --for 10m"))
@click.argument("ratio", type=float)
@_FOR
@click.pass_obj
def sample_ratio(opened: Opened, ratio: float, for_s: float) -> None:
    """Record this share of traces, those of routes with a ratio of their own included."""
    _change(opened, "sample_ratio", ratio, for_s)


@command.command(epilog=examples("inference-logging ctl chunks events --for 1m"))
@click.argument("mode", type=click.Choice(CHUNKS))
@_FOR
@click.pass_obj
def chunks(opened: Opened, mode: str, for_s: float) -> None:
    """Record streams in this MODE, as the parameter chunks has it."""
    _change(opened, "chunks", mode, for_s)


@command.command(
    epilog=examples(
        "inference-logging ctl capture --trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "inference-logging ctl capture --route '/items/{id}' --for 2m",
        "inference-logging ctl capture --errors 50",
    )
)
@click.option("--trace", metavar="ID", help="Requests of this trace: 32 hex digits.")
@click.option("--route", metavar="PATH", help="Requests to this path; {name} for any one segment, * at the end.")
@click.option("--errors", type=click.IntRange(1, LONGEST_ERRORS), metavar="N", help="The next N requests that fail.")
@_FOR
@click.pass_obj
def capture(opened: Opened, trace: str | None, route: str | None, errors: int | None, for_s: float) -> None:
    """Record everything there is of a trace, of a route, or of the next errors; several captures can be in force.

    Such requests are kept whatever the sampler says (sampled_by: forced), with a record per chunk of their streams.
    That a request fails is known at its end only: errors have the timeline of their chunks instead.
    """
    wanted = {"capture.trace": trace, "capture.route": route, "capture.errors": errors}
    chosen = [(what, value) for what, value in wanted.items() if value is not None]
    if len(chosen) != 1:
        raise click.UsageError("name one of --trace, --route and --errors")
    _change(opened, *chosen[0], for_s)


@command.command(epilog=examples("inference-logging ctl show", "inference-logging ctl show --json"))
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@click.pass_obj
def show(opened: Opened, as_json: bool) -> None:
    """Show what is in force, and until when."""
    _show(opened, as_json=as_json)


@command.command(epilog=examples("inference-logging ctl reset"))
@click.pass_obj
def reset(opened: Opened) -> None:
    """End everything that is in force; the servers do again as they are configured."""
    ended = _on_record(lambda: opened.control.reset(_who()))
    click.echo(f"ended: {ended}")


@command.command(
    epilog=examples("inference-logging ctl clean", "inference-logging ctl --queue-directory /run/queues clean")
)
@click.pass_obj
def clean(opened: Opened) -> None:
    """Remove queue directories of services that have ended, with all of their processes.

    Without --service-name and --queue-directory, all that this user has by default. One with a queue stays: a process
    lives, or its records wait for `inference-logging recover`. The counters of a directory begin anew.
    """
    for directory in opened.directories:
        try:
            why = cleaning.remove(directory)
        except FileNotFoundError:
            raise click.UsageError(f"queue_directory={directory}: there is none") from None
        except OSError as error:
            raise click.ClickException(f"queue_directory={directory}: {error}") from None
        click.echo(f"removed {directory}" if why is None else f"kept {directory}: {why}")


def _change(opened: Opened, what: str, value: str | float, for_s: float) -> None:
    _on_record(lambda: opened.control.change(what, value, for_s, _who()))
    _show(opened, as_json=False)


def _on_record(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(str(error)) from None


def _who() -> str:
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = "?"
    return f"{name} (uid {user}), inference-logging ctl, pid {os.getpid()}"


def _show(opened: Opened, *, as_json: bool) -> None:
    overrides = opened.control.overrides()
    directory = str(opened.directory)
    if as_json:
        click.echo(json.dumps({"queue_directory": directory, "overrides": overrides}))
        return
    click.echo(f"queue directory  {directory}")
    if not overrides:
        click.echo("nothing is changed: all is as configured")
    for override in overrides:
        until = datetime.fromtimestamp(override["until_unix_nano"] / 1e9, timezone.utc)
        rest = f"until {until:%Y-%m-%dT%H:%M:%SZ}, {override['remaining_s']:.0f} s left"
        click.echo(f"{override['what']:<16} {_shown(override)}  {rest}")


def _shown(override: dict[str, Any]) -> str:
    return f"{override['value']} more" if override["what"] == "capture.errors" else str(override["value"])
