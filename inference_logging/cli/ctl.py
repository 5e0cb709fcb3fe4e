"""`inference-logging ctl`: change level, sampling and capture of running servers for a while, each change on record.

The servers map one page of the queue directory. A change is one store to that page, and every process sees it with its
next request. Nothing is sent to the servers, and none has to run: a server that starts later sees what is in force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from inference_logging.cli import native
from inference_logging.cli.main import OK, Group
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, examples

if TYPE_CHECKING:
    from inference_logging.record.config import Config

Given = dict[str, Any]
"""The part of the configuration that the command line gives."""

LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR")
CHUNKS: Final = ("off", "summary", "timeline", "events")
LONGEST_ERRORS: Final = 1_000_000

_ALL = click.option("--all", "all_", is_flag=True, default=None, help="All queue directories of the application.")
_FOR = click.option(
    "--for",
    "for_",
    default="15m",
    show_default=True,
    metavar="TIME",
    help="How long: 90s, 15m, 2h. At most control_limit_s.",
)


def _with_place(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name servers: they mean the same before and behind the name of a command."""

    @functools.wraps(command)
    def with_place(
        context: click.Context,
        config_file: Path | None,
        service_name: str | None,
        queue_directory: Path | None,
        all_: bool | None,
        **rest: Any,
    ) -> int:
        own = {"config_file": config_file, "service_name": service_name, "queue_directory": queue_directory}
        given = {name: value for name, value in {**own, "all": all_}.items() if value is not None}
        context.obj = {**(context.obj if isinstance(context.obj, dict) else {}), **given}
        return command(context.obj, **rest)

    decorated: Any = with_place
    decorated = click.pass_context(decorated)
    for option in (_ALL, QUEUE_DIRECTORY, SERVICE_NAME, CONFIG):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click gives back what it is given


@click.group(
    "ctl",
    cls=Group,
    epilog=examples(
        "inference-logging ctl level DEBUG --for 5m",
        "inference-logging ctl --service-name chat capture --errors 50",
        "inference-logging ctl show",
        "inference-logging ctl reset",
    ),
)
@_with_place
def command(_given: Given) -> int:
    """Change level, sampling and capture while the servers run, or stop recording, for a limited time.

    The servers are those of this folder's application: found by the queue directory of their configuration, read here
    from the same environment and file, or else by the segments in the configured directory. --service-name picks a
    service. If there are several queue directories, they are listed and nothing changes. Only the owner of a queue
    directory (mode 0700) can change anything. Each change is recorded (control.changed) before it takes effect, in all
    processes at once.
    """
    return 0


@command.command(epilog=examples("inference-logging ctl disable --for 10m"))
@_FOR
@_with_place
def disable(given: Given, for_: str) -> int:
    """Record nothing: requests pass through; loggers and events do nothing. The audit lane goes on."""
    return _run(given, "disable", for_=for_)


@command.command(epilog=examples("inference-logging ctl enable"))
@_with_place
def enable(given: Given) -> int:
    """End disable before its time is over."""
    return _run(given, "enable")


@command.command(epilog=examples("inference-logging ctl level DEBUG --for 5m"))
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@_FOR
@_with_place
def level(given: Given, level: str, for_: str) -> int:
    """Accept application records (get_logger) from LEVEL on.

    The standard library's loggers, structlog and loguru have levels of their own.
    """
    return _run(given, "level", level, for_=for_)


@command.command("sample-ratio", epilog=examples("inference-logging ctl sample-ratio 0.1 --for 10m"))
@click.argument("ratio", type=float)
@_FOR
@_with_place
def sample_ratio(given: Given, ratio: float, for_: str) -> int:
    """Record this share of traces, on routes with their own ratio too."""
    return _run(given, "sample-ratio", str(ratio), for_=for_)


@command.command(epilog=examples("inference-logging ctl chunks events --for 1m"))
@click.argument("mode", type=click.Choice(CHUNKS))
@_FOR
@_with_place
def chunks(given: Given, mode: str, for_: str) -> int:
    """Record streams in this MODE (parameter chunks)."""
    return _run(given, "chunks", mode, for_=for_)


@command.command(
    epilog=examples(
        "inference-logging ctl capture --trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "inference-logging ctl capture --route '/items/{id}' --for 2m",
        "inference-logging ctl capture --errors 50",
    )
)
@click.option("--trace", metavar="ID", help="Requests of this trace: 32 hex digits.")
@click.option(
    "--route", metavar="PATH", help="Requests to this path; {name} is any one segment, * at the end the rest."
)
@click.option("--errors", type=click.IntRange(1, LONGEST_ERRORS), metavar="N", help="The next N requests that fail.")
@_FOR
@_with_place
def capture(given: Given, trace: str | None, route: str | None, errors: int | None, for_: str) -> int:
    """Record everything about a trace, a route or the next errors; several captures can be in force.

    These requests are kept whatever the sampler says (sampled_by: forced), with a record per chunk of their streams. A
    failure is known only at a request's end, so errors have the timeline of their chunks instead. Texts, bodies and
    headers are recorded as configured (capture_input, capture_output, capture_body, record_headers); those that are off
    are printed. Requests already under way are not captured.
    """
    code = _run(given, "capture", trace=trace, route=route, errors=errors, for_=for_)
    if code == OK and (left_out := _not_captured(configuration(**_place(given)))):
        click.echo(f"not captured     off in this configuration: {left_out}")
    return code


@command.command(epilog=examples("inference-logging ctl show", "inference-logging ctl show --json"))
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@_with_place
def show(given: Given, as_json: bool) -> int:
    """Show what is in force, and until when."""
    return _run(given, "show", json=as_json)


@command.command(epilog=examples("inference-logging ctl reset"))
@_with_place
def reset(given: Given) -> int:
    """End all changes: the servers follow their configuration again."""
    return _run(given, "reset")


@command.command(
    epilog=examples("inference-logging ctl clean", "inference-logging ctl --queue-directory /run/queues clean")
)
@_with_place
def clean(given: Given) -> int:
    """Remove the application's queue directories whose processes have all ended.

    With --all, those of all services in this user's default location. A directory with a queue stays: a process is
    alive, or its records wait for `inference-logging recover`. A removed directory's counters start over.
    """
    return _run(given, "clean")


def _run(given: Given, command: str, *arguments: str, **options: Any) -> int:
    """Run a command of the group."""
    place = _place(given)
    group = native.options(service_name=place["service_name"], all=given.get("all"))
    return native.run(["ctl", *group, command, *native.options(**options), "--", *arguments], configuration(**place))


def _place(given: Given) -> Given:
    return {name: given.get(name) for name in ("config_file", "service_name", "queue_directory")}


def _not_captured(config: Config) -> str:
    """Return the texts that the configuration keeps off the records, by its parameters."""
    texts = {name: getattr(config, name) for name in ("capture_input", "capture_output", "capture_body")}
    off = [f"{name}: off" for name, mode in texts.items() if mode == "off"]
    return ", ".join(off if config.record_headers else [*off, "record_headers: none"])
