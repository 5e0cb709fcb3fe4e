"""`inference-logging ctl`: change level, sampling and capture of running servers for a while, each change on record.

The servers map one page of the queue directory. A change is one store to that page, and every process sees it with its
next request. Nothing is sent to the servers, and none has to run: a server that starts later sees what is in force.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from inference_logging.cli import native
from inference_logging.cli.examples import examples
from inference_logging.cli.main import Group
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration

Given = dict[str, Any]
"""The part of the configuration that the command line gives."""

LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR")
CHUNKS: Final = ("off", "summary", "timeline", "events")
LONGEST_ERRORS: Final = 1_000_000

_FOR = click.option(
    "--for",
    "for_",
    default="15m",
    show_default=True,
    metavar="TIME",
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
    context.obj = {"config_file": config_file, "service_name": service_name, "queue_directory": queue_directory}


@command.command(epilog=examples("inference-logging ctl disable --for 10m"))
@_FOR
@click.pass_obj
def disable(given: Given, for_: str) -> int:
    """Record nothing: requests pass through, loggers and events do nothing. The audit lane goes on."""
    return _run(given, "disable", **{"--for": for_})


@command.command(epilog=examples("inference-logging ctl enable"))
@click.pass_obj
def enable(given: Given) -> int:
    """Record again what disable has switched off, before its time is over."""
    return _run(given, "enable")


@command.command(epilog=examples("inference-logging ctl level DEBUG --for 5m"))
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@_FOR
@click.pass_obj
def level(given: Given, level: str, for_: str) -> int:
    """Accept application records (get_logger) from LEVEL on.

    What the standard library's own loggers leave out before their handlers is not affected.
    """
    return _run(given, "level", level, **{"--for": for_})


@command.command("sample-ratio", epilog=examples("inference-logging ctl sample-ratio 0.1 --for 10m"))
@click.argument("ratio", type=float)
@_FOR
@click.pass_obj
def sample_ratio(given: Given, ratio: float, for_: str) -> int:
    """Record this share of traces, those of routes with a ratio of their own included."""
    return _run(given, "sample-ratio", str(ratio), **{"--for": for_})


@command.command(epilog=examples("inference-logging ctl chunks events --for 1m"))
@click.argument("mode", type=click.Choice(CHUNKS))
@_FOR
@click.pass_obj
def chunks(given: Given, mode: str, for_: str) -> int:
    """Record streams in this MODE, as the parameter chunks has it."""
    return _run(given, "chunks", mode, **{"--for": for_})


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
def capture(given: Given, trace: str | None, route: str | None, errors: int | None, for_: str) -> int:
    """Record everything there is of a trace, of a route, or of the next errors; several captures can be in force.

    Such requests are kept whatever the sampler says (sampled_by: forced), with a record per chunk of their streams.
    That a request fails is known at its end only: errors have the timeline of their chunks instead.
    """
    return _run(given, "capture", **{"--trace": trace, "--route": route, "--errors": errors, "--for": for_})


@command.command(epilog=examples("inference-logging ctl show", "inference-logging ctl show --json"))
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@click.pass_obj
def show(given: Given, as_json: bool) -> int:
    """Show what is in force, and until when."""
    return _run(given, "show", **{"--json": as_json})


@command.command(epilog=examples("inference-logging ctl reset"))
@click.pass_obj
def reset(given: Given) -> int:
    """End everything that is in force; the servers do again as they are configured."""
    return _run(given, "reset")


@command.command(
    epilog=examples("inference-logging ctl clean", "inference-logging ctl --queue-directory /run/queues clean")
)
@click.pass_obj
def clean(given: Given) -> int:
    """Remove queue directories of services that have ended, with all of their processes.

    Without --service-name and --queue-directory, all that this user has by default. One with a queue stays: a process
    lives, or its records wait for `inference-logging recover`. The counters of a directory begin anew.
    """
    return _run(given, "clean")


def _run(given: Given, command: str, *arguments: str, **options: Any) -> int:
    """Run a command of the group."""
    group = native.options({"--config": given["config_file"], "--queue-directory": given["queue_directory"]})
    group += native.options({"--service-name": given["service_name"]})
    return native.run(["ctl", *group, command, *native.options(options), "--", *arguments], configuration(**given))
