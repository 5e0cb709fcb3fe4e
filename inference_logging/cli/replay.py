"""`inference-logging replay`: exported requests sent again at their times, and compared with the recorded run."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from inference_logging.cli.main import FAILED, INTERRUPTED, OK
from inference_logging.cli.options import OUTPUT, examples
from inference_logging.cli.progress import bar
from inference_logging.prove.replay.schedule import BODIES, TRACES, Changes, ReplayError, Schedule
from inference_logging.read.terminal import safe
from inference_logging.ship.http import pairs

if TYPE_CHECKING:
    from inference_logging.prove.replay.player import Result, State
    from inference_logging.prove.replay.report import Replayed


@click.command(
    "replay",
    epilog=examples(
        "inference-logging replay batch.jsonl --url http://127.0.0.1:8000",
        "inference-logging replay batch.jsonl --url http://127.0.0.1:8000 --speed 2 --html replay.html",
        "inference-logging replay trace.jsonl --url http://127.0.0.1:8000 --model llama --set ignore_eos=true",
    ),
)
@click.argument("file", metavar="EXPORT", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--url", required=True, metavar="URL", help="Server: http://host:port, to which paths are added.")
@click.option(
    "--speed", default=1.0, show_default=True, type=click.FloatRange(min=0, min_open=True, max=1e6),
    help="How many times as fast as recorded.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice([BODIES, *TRACES]),
    help="Format of the file; by default as its first row shows (openai-jsonl, mooncake).",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="Model to request instead of the recorded one; needed for a trace.")
@click.option(
    "--set", "given", multiple=True, metavar="NAME=JSON",
    help="Member of every body, instead of the recorded one; repeatable.",
)  # fmt: skip
@click.option(
    "--path", "trace_path", default="/v1/completions", show_default=True, metavar="PATH",
    help="Path for the requests of a trace.",
)  # fmt: skip
@click.option("--block-tokens", type=click.IntRange(min=1), help="Tokens per prefix id of a trace, if unusual.")
@click.option("--limit", type=click.IntRange(min=1), help="Send only this many requests, the first ones.")
@click.option(
    "--concurrency", type=click.IntRange(min=1),
    help="Most requests at once. If requests have to wait for others, the report says that the loop was not open.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", default=600.0, show_default=True, type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS", help="Longest wait for the next byte of an answer.",
)  # fmt: skip
@click.option(
    "--headers-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Headers for every request, one `name: value` per line, as ship_headers_file.",
)  # fmt: skip
@click.option(
    "--ca-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Certificates to check the server's against.",
)  # fmt: skip
@click.option("--json", "json_file", type=OUTPUT, metavar="FILE",
              help="Write the report as JSON too.")  # fmt: skip
@click.option("--html", type=OUTPUT, metavar="FILE",
              help="Write a page with plots too, in one file.")  # fmt: skip
@click.option(
    "--requests", "requests_file", type=OUTPUT, metavar="FILE",
    help="Write a JSON line per request as it ends: intended and actual time, status, time of each chunk.",
)  # fmt: skip
def command(
    file: Path,
    url: str,
    speed: float,
    form: str | None,
    model: str | None,
    given: tuple[str, ...],
    trace_path: str,
    block_tokens: int | None,
    limit: int | None,
    concurrency: int | None,
    timeout_s: float,
    headers_file: Path | None,
    ca_file: Path | None,
    json_file: Path | None,
    html: Path | None,
    requests_file: Path | None,
) -> int:
    """Send the requests of EXPORT to a server at their recorded times, and compare the answers with the recorded ones.

    The loop is open: a request is sent at its recorded arrival, whether or not earlier ones were answered. If it is
    late, that is reported, and delays no other. Streams are read as they come; if the recorded client left, this one
    leaves after as many chunks, or seconds. Each request has a new trace, and the recorded id as X-Request-Id, which a
    record of the replay has as client_request_id.

    EXPORT is an openai-jsonl file of `export`, or a trace (mooncake, vllm-timed, guidellm, aiperf). A trace's prompts
    are made up, one word per token, with the same text for the same prefix ids.

    Ctrl-C ends it with a report so far.

    Exit code: 1 if a request could not be sent, or none could be compared; 2 if EXPORT is wrong.
    """
    _check_url(url)
    if not trace_path.startswith("/"):
        raise click.BadParameter(f"{trace_path!r}: must begin with /", param_hint="--path")
    members = dict(_member(text) for text in given) | ({"model": model} if model is not None else {})
    headers = dict(pairs(headers_file, "--headers-file", ":"))
    try:
        schedule = Schedule(file, form, Changes(members, trace_path, block_tokens), limit)
    except ReplayError as error:
        raise click.UsageError(str(error)) from None
    from inference_logging.prove.replay import report
    from inference_logging.prove.replay.client import Client
    from inference_logging.prove.replay.player import Pace, Player

    pace = Pace(speed, concurrency)
    results: list[Result] = []
    text = "{task.completed}/{task.total}, {task.fields[under_way]} under way, last sent {task.fields[late]} late"
    with _opened(requests_file) as written, bar(schedule.requests, text, under_way=0, late="0 ms") as moves:

        def show(state: State) -> None:
            moves(completed=state.ended, under_way=state.under_way, late=f"{state.late_s * 1e3:.0f} ms")

        def keep(result: Result) -> None:
            if written is not None:
                written.write(json.dumps(report.result_json(result)) + "\n")
            results.append(result)

        async def run() -> State:
            async with Client(url, headers, timeout_s=timeout_s, ca_file=str(ca_file) if ca_file else None) as client:
                return await Player(client, pace, keep).play(schedule, show)

        state = asyncio.run(run())
    replayed = report.Replayed(schedule, url, pace, state, results)
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(replayed), indent=2) + "\n", encoding="utf-8")
    if html is not None:
        report.write_page(html, replayed)
    return _print(replayed)


def _opened(path: Path | None) -> AbstractContextManager[IO[str] | None]:
    return path.open("w", encoding="utf-8") if path is not None else nullcontext()


def _print(replayed: Replayed) -> int:
    """Print the report and return the exit code."""
    from inference_logging.prove.replay import report

    click.echo("\n".join(f"{name:<30} {value}" for name, value in report.headline(replayed)))
    for table in report.tables(replayed):
        click.echo("\n" + table.text())
    for note in report.notes(replayed):
        click.echo(f"inference-logging replay: {safe(note)}", err=True)
    if replayed.state.is_interrupted:
        return INTERRUPTED
    return FAILED if replayed.not_sent or not replayed.comparison.is_made else OK


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise click.BadParameter(f"{url!r}: must be http://host:port", param_hint="--url") from None
    if parts.username is not None or parts.password is not None:
        # Not shown, since it is a secret.
        raise click.BadParameter("must have no user or password: see --headers-file", param_hint="--url")
    if not is_server or parts.query or parts.fragment:
        raise click.BadParameter(f"{url!r}: must be http://host:port or https://…", param_hint="--url")


def _member(text: str) -> tuple[str, Any]:
    """Read NAME=JSON; what is no JSON is a text."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{text!r}: must be NAME=JSON", param_hint="--set")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
