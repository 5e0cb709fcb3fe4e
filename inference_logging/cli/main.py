"""The entry point of `inference-logging`: finds the command, and turns its end into an exit code.

Each command is a file beside this one with a `command` object. The list of commands is defined here, so that `--help`
and a mistyped name load neither the commands nor their dependencies (DuckDB).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

from inference_logging.errors import ConfigError, InferenceLoggingError
from inference_logging.record._foreign import report_foreign

OK: Final = 0
FAILED: Final = 1
"""Something could not be done, or a check found something."""
USAGE: Final = 2
"""The command line or the configuration is wrong; nothing was done."""
INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as shells count it."""
BROKEN_PIPE: Final = 141
"""The reader of the output has gone away (`… | head`): 128 + SIGPIPE, without a message."""

EXIT_CODES: Final = {
    OK: "done; a check found nothing",
    FAILED: "failed, a check found something, or something is left",
    USAGE: "wrong command line or configuration, or nothing to read: nothing was done",
    INTERRUPTED: "ended by Ctrl-C, or by a second signal",
    BROKEN_PIPE: "the reader of the output went away",
}
"""The same for every command. Each command's own help adds what a check finds and what can be left."""


class Entry(NamedTuple):
    """A command in the list: its purpose, and an example of its use."""

    summary: str
    example: str


COMMANDS: Final[dict[str, Entry]] = {
    "bench": Entry("Measure what logging costs on this machine, ours and others'.", "inference-logging bench --quick"),
    "config": Entry("Show, check and describe the configuration.", "inference-logging config check logging.yaml"),
    "ctl": Entry(
        "Change level, sampling and capture while the servers run.",
        "inference-logging ctl capture --errors 50 --for 15m",
    ),
    "ab": Entry("Measure what recording costs on running servers.", "inference-logging ab --for 60s"),
    "listen": Entry(
        "Listen for servers that only produce, as a sidecar.", "inference-logging listen --config logging.yaml"
    ),
    "proxy": Entry(
        "Record the requests of a server without a hook.",
        "inference-logging proxy --listen 0.0.0.0:8000 --to 127.0.0.1:8080",
    ),
    "run": Entry(
        "Start a server with the middleware around its application.",
        "inference-logging run -- uvicorn app:app --workers 4",
    ),
    "recover": Entry(
        "Write what dead servers left in their queues.", "inference-logging recover /mnt/saved-queues --json"
    ),
    "ship": Entry(
        "Send records to a broker, collector, database, bucket or syslog.",
        "inference-logging ship --to kafka://broker:9092/requests",
    ),
    "verify": Entry(
        "Prove that no record is missing, or name each gap.",
        "inference-logging verify logs --queue-directory /dev/shm/inference_logging-0-chat",
    ),
    "index": Entry("Write the table that view, query and stats ask, as Parquet files.", "inference-logging index logs"),
    "tail": Entry("Print the last records, and follow new ones.", "inference-logging tail --last 5"),
    "query": Entry(
        "Run SQL over the records.",
        "inference-logging query 'SELECT outcome, count(*) FROM requests GROUP BY outcome'",
    ),
    "export": Entry(
        "Write requests in the formats of load generators, viewers and tables.",
        "inference-logging export --format mooncake -o trace.jsonl",
    ),
    "replay": Entry(
        "Send exported requests again at their recorded times, and compare.",
        "inference-logging replay batch.jsonl --url http://127.0.0.1:8000 --speed 2",
    ),
    "view": Entry("Open a live page of requests in this machine's browser.", "inference-logging view logs"),
    "stats": Entry(
        "Summarize requests: outcomes, times, tokens; also as a page with plots.", "inference-logging stats logs"
    ),
}
"""The name of each command in this table is also the name of its module."""


class Group(click.Group):
    """A group that suggests similar command names for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names."""
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing and not args[0].startswith("-"):
            import difflib  # only where a name is wrong

            near = difflib.get_close_matches(args[0], names, 1)
            ctx.fail(f"no such command: {args[0]!r}" + (f", the nearest is {near[0]!r}" if near else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that imports its commands when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"inference_logging.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list without an import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the examples and the exit codes."""
        with formatter.section("Examples"):
            for entry in COMMANDS.values():
                formatter.write_text(entry.example)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its output is written when this returns."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise click.exceptions.Exit(BROKEN_PIPE) from None
        return result


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, help="Show the version and exit.",
    callback=lambda context, _parameter, asked: _show_version(context) if asked else None,
)  # fmt: skip
def command() -> None:
    """Inspect an inference server's logging, and change it while it runs."""


def _show_version(context: click.Context) -> None:
    from inference_logging._native import __version__  # the version of the code itself, not of the installed package

    click.echo(f"inference-logging {__version__}")
    context.exit()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own) and return its exit code. No user error raises an exception."""
    try:
        is_process = arguments is None  # a caller's process must not become the listener's program
        returned = command.main(arguments, prog_name="inference-logging", standalone_mode=False, obj=is_process)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (InferenceLoggingError, OSError) as error:
        click.echo(f"inference-logging: {_words(error)}", err=True)
        return USAGE if isinstance(error, ConfigError) else FAILED
    return returned if isinstance(returned, int) else OK


def _words(error: Exception) -> str:
    """Return the error's message; for one of the operating system the file and the reason, without its number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _show(error: click.ClickException) -> None:
    """Report an error on one line, where click would show the usage above it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.UsageError) and error.format_message() and not type(error).__name__.startswith("NoArgs"):
        where = f" (see {context.command_path} --help)" if context is not None else ""
        click.echo(f"Error: {' '.join(error.format_message().split())}{where}", err=True)
    else:
        error.show()


def main() -> None:
    """Run as the process `inference-logging`."""
    report_foreign()
    code = run()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.exit(code)
    # The reader has gone away: the interpreter's own flush at exit writes to nowhere, rather than complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


if __name__ == "__main__":
    main()
