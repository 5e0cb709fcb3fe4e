"""Writes a page of docs/ from the code: commands, metrics, or the fields of a request's record.

python -m tools.reference commands > docs/commands.md
"""

from __future__ import annotations

import asyncio
import copy
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.cli.main import COMMANDS, EXIT_CODES
from inference_logging.cli.main import command as root
from inference_logging.metrics import metrics_of
from inference_logging.read.segments.columns import FIELDS, Field
from inference_logging.record.config.reference import in_table
from inference_logging.record.health import Watch
from inference_logging.record.integrations.vllm.stats import STATS_FIELDS

_PRINTED: Final = "Printed by `python -m tools.reference {}`; a test fails while this file says something else."
_WIDTH: Final = 100
_ABOUT: Final = (
    "A counter's samples end with `_total`. [health-and-metrics.md](health-and-metrics.md) says how to serve metrics. "
    "Those of requests and engines appear with the first such request or record; engine times "
    "(`inference_logging_engine_queue_time_seconds`, `…_prefill_time_seconds`, `…_decode_time_seconds`) need "
    "`engine_records`. A model counts as `_OTHER` until a request to it succeeds or an answer names it, since any "
    "client can invent a name; so does one beyond the first 62."
)


Named = tuple[str, click.Command, click.Context]
"""A command's heading, the command, and a context with its name in full."""


def commands() -> str:
    """Return the page of commands: each with its help, and once the options that many have."""
    found = list(_commands())
    common = _common(found)
    lines = ["# Commands", "", _PRINTED.format("commands"), "", "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {entry.summary} |" for name, entry in COMMANDS.items()]
    lines += ["", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    lines += ["", "| option under Also | meaning |", "|---|---|"]
    lines += [f"| `{option}` | {in_table(meaning)} |" for option, meaning in sorted(common.items())]
    for heading, command, context in found:
        lines += ["", heading, *_help(command, context, common)]
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[Named]:
    context = click.Context(root, info_name="inference-logging", **root.context_settings)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        yield (f"## {name}", command, own := _context(command, name, context))
        if isinstance(command, click.Group):
            for inner in command.list_commands(own):
                found = command.get_command(own, inner)
                assert found is not None
                yield (f"### {name} {inner}", found, _context(found, inner, own))


def _context(command: click.Command, name: str, parent: click.Context) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **command.context_settings,
    )


def _common(found: Iterable[Named]) -> dict[str, str]:
    """Return the options with one meaning in several commands, by what they take."""
    options = ((one, context) for _, command, context in found for one in command.params)
    counts = Counter(one.get_help_record(context) for one, context in options if isinstance(one, click.Option))
    common: dict[str, str] = {}
    for record, count in counts.most_common():
        if record is not None and count > 1:
            common.setdefault(*record)
    return common


def _help(command: click.Command, context: click.Context, common: Mapping[str, str]) -> Iterator[str]:
    """Print a command's help, without the meaning of common options."""
    command = copy.copy(command)
    named = [(one, one.get_help_record(context) or ("", "")) for one in command.params]
    is_group = isinstance(command, click.Group)
    group = context.parent.command if context.parent is not None and context.parent.command is not root else None
    of_group = {one.get_help_record(context) for one in group.params} if group is not None else set()
    shared = [record for _, record in named if record[0] and common.get(record[0]) == record[1]]
    also = [f"`{record[0]}`" for record in shared if record not in of_group]
    command.params = [one for one, (option, meaning) in named if not option or common.get(option) != meaning]
    command.add_help_option = False
    # A group's commands have sections of their own.
    text = re.sub(r"\nCommands:\n(?:  .*\n)+", "", command.get_help(context) + "\n")
    yield from ("", "```text", *(line.rstrip() for line in text.rstrip().splitlines()), "```")
    if also:
        yield from ("", f"{'Also, and for each command below' if is_group else 'Also'}: {', '.join(also)}.")


def metrics() -> str:
    """Return the page of metrics: each family with its kind, unit and meaning."""
    with tempfile.TemporaryDirectory() as folder:
        tenants = {"record_headers": ("x-tenant=tenant.id",), "metrics_tenants": ("acme",)}
        places = {"directory": Path(folder) / "logs", "queue_directory": Path(folder) / "queues"}
        config = Config(**places, **tenants, audit="on")
        with Logger(config) as logger:
            _stream(config)
            logger.event("engine.stats", STATS_FIELDS)(0, 10.0, 1, 0, 0.5, *[None] * (len(STATS_FIELDS) - 5))
            assert logger.flush(60)
            found = metrics_of(logger, Watch(config, logger.service, audit=logger.audit_service)).families()
    lines = ["# Metrics", "", _PRINTED.format("metrics"), ""]
    lines.append(_ABOUT)
    lines += ["", "| name | kind | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {unit} | {meaning} |" for name, kind, unit, meaning, _ in sorted(found)]
    return "\n".join(lines) + "\n"


def _stream(config: Config) -> None:
    """Serve a stream that has something in each histogram of requests, of a tenant."""
    json, stream = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [json, (b"x-tenant", b"acme")],
    }
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n'
    parts = [b'data: {"model": "m"}\n\n'] * 3 + [usage, b""]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"model": "m", "stream": true}'}

    async def send(_message: object) -> None:
        await asyncio.sleep(0.001)  # a moment between two chunks

    async def app(_scope: object, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [stream]})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": bool(part)})

    asyncio.run(InferenceLoggingMiddleware(app, config)(scope, receive, send))


_OF_REQUESTS: Final = f"""\
# The record of a request

{_PRINTED.format("request")}

The server's fields come first, in the order of the line; Triton's precede an exception. The listener reads its fields
from bodies, derives them, or takes them from headers ([records.md](records.md), [texts.md](texts.md),
[identity.md](identity.md)). A field without a value is left out. Types are those of `inference-logging query`, units
are UCUM's.

"""


def _table(source: str) -> str:
    shown = [field for field in FIELDS.values() if field.source == source and field.kind]
    return "| field | type | unit | meaning |\n|---|---|---|---|\n" + "".join(map(_row, shown))


def _row(field: Field) -> str:
    return f"| `{field.name}` | {field.kind} | {field.unit} | {field.meaning} |\n"


def request() -> str:
    """Return the page of a request's fields: each with its type, unit and meaning."""
    return f"{_OF_REQUESTS}## From the server\n\n{_table('server')}\n## From the listener\n\n{_table('listener')}"


PAGES: Final = {"commands": commands, "metrics": metrics, "request": request}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python -m tools.reference {'|'.join(PAGES)}")
    sys.stdout.write(PAGES[sys.argv[1]]())
