"""`inference-logging export`: recorded requests as files of load generators, viewers and tables."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from inference_logging.cli.filters import TRACE, WHERE, Filters, Names, conditions
from inference_logging.cli.main import FAILED, OK
from inference_logging.cli.options import FORMS, OUTPUT, Place, examples, from_option, of_segments
from inference_logging.errors import CorruptLineError
from inference_logging.read.export.formats import KINDS, Options, writer
from inference_logging.read.export.prompts import KEY_BYTES, Prefixes
from inference_logging.read.export.requests import Request
from inference_logging.read.export.run import read, write
from inference_logging.read.export.statement import ADVICE, NOT_MEANT, Books, Requests, Statement
from inference_logging.read.private import for_its_owner
from inference_logging.read.segments import Record
from inference_logging.read.terminal import safe
from inference_logging.read.times import timestamp

_MAX_REPORTED: Final = 20
"""Damaged lines that are named; all are counted."""


@click.command(
    "export",
    epilog=examples(
        "inference-logging export --format mooncake -o trace.jsonl",
        "inference-logging export logs --format vllm-timed --since 2h -o timed.jsonl --statement statement.json",
        "inference-logging export --format openai-jsonl --where gen_ai.request.model=llama -o batch.jsonl",
        "inference-logging export --format perfetto --since 5m -o timeline.json",
        "inference-logging export --format parquet --require-complete -o requests.parquet",
    ),
)
@of_segments
@click.option(
    "--format", "form", type=click.Choice(list(KINDS)), required=True,
    help="Format of the file, from the list above.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE",
    help="File to write; - is standard output.",
)  # fmt: skip
@WHERE
@TRACE
@click.option(
    "--since", callback=from_option, metavar="TIME", help=f"Only requests that arrived from then on: {FORMS} ago."
)
@click.option("--until", callback=from_option, metavar="TIME", help="Only requests that arrived before then.")
@click.option("--text", "with_text", is_flag=True, help="aiperf, parquet: include captured texts or bodies.")
@click.option(
    "--block-tokens", type=click.IntRange(min=1), metavar="N",
    help="Input tokens per prefix id. Default: 16 for vllm-timed, else 512, as readers expect.",
)  # fmt: skip
@click.option(
    "--bytes-per-token", type=click.FloatRange(min=0.25, max=64), default=4.0, show_default=True, metavar="N",
    help="Bytes of text that count as one token when blocks are cut.",
)  # fmt: skip
@click.option(
    "--hash-key-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Key of the prefix ids, as capture_hash_key_file. Default: a new one, so ids of two exports differ.",
)  # fmt: skip
@click.option(
    "--queue-directory", "queues", multiple=True, type=click.Path(path_type=Path),
    help="Directory of the servers' queues, as for verify; repeatable.",
)  # fmt: skip
@click.option("--statement", type=OUTPUT, metavar="FILE", help="Write the statement as JSON too.")
@click.option("--require-complete", is_flag=True, help="Exit with 1 if a record is lost, missing or still in a queue.")
@click.pass_context
def command(
    context: click.Context,
    place: Place,
    form: str,
    output: Path,
    where: tuple[str, ...],
    trace: str | None,
    since: float | None,
    until: float | None,
    with_text: bool,
    block_tokens: int | None,
    bytes_per_token: float,
    hash_key_file: Path | None,
    queues: tuple[Path, ...],
    statement: Path | None,
    require_complete: bool,
) -> int:
    """Write the requests of DIRECTORY (default: the configured one) in another program's format, by arrival.

    \b
    mooncake      lengths and prefix ids, JSON lines, ms: Dynamo's mocker, AIPerf
    vllm-timed    the same in seconds: vllm bench serve --dataset-name timed_trace
    aiperf        AIPerf's fixed schedule; with --text the bodies as they were sent
    guidellm      GuideLLM's trace kind mooncake, with durations
    openai-jsonl  OpenAI's batch file, with arrivals and results, for `replay`
    sharegpt      conversations, a JSON list
    perfetto      time line for ui.perfetto.dev and vizviewer
    parquet       table with the columns of `query` (extra `query`)

    Texts leave the records only with --text or in a format made of them (openai-jsonl, sharegpt). Prefix ids are keyed
    hashes of the captured text, or of its captured hashes; servers do not record the engine's token blocks. A prompt
    that was not captured has unique ids, which say nothing.

    Each export ends with a statement on stderr: requests in the file, requests that a filter, the format or sampling
    left out, and records that were lost, by the books that `verify` checks.

    Exit code: 1 if something can't be read or written, if the format can't hold any of the requests or, with
    --require-complete, if anything is missing.
    """  # noqa: D301 - a real backspace: with it click does not wrap the list
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until: no request can arrive between them")
    to_stdout = str(output) == "-"
    block_tokens = block_tokens or KINDS[form]
    key = _key(hash_key_file) if hash_key_file is not None else secrets.token_bytes(KEY_BYTES)
    made = writer(form, Options(Prefixes(key, block_tokens, bytes_per_token), with_text))
    chosen = place.segments(since)
    chosen_fields = conditions(where)
    names, filters = Names(chosen_fields, (), ()), Filters(chosen_fields, (), trace)
    # Before the records are read: what the books count must be found.
    books = Books.look(_verify_options(context, place, queues))
    counted = Requests()
    requests = _checked(read(chosen, _Report(counted)), names)
    wanted = _wanted(filters.keep, since, until)
    write(requests, wanted, made, None if to_stdout else output, counted)
    faults = books.faults(timestamp(since) if since is not None else "", chosen)
    if place.segment() is not None:
        faults.append("one segment was read, but the books cover its directory")
    if counted.damaged_lines:
        faults.append(f"{counted.damaged_lines:,} lines could not be read")
    given = {"where": list(where), "trace": trace, "since": since, "until": until, "block_tokens": block_tokens}
    made_statement = Statement(form, str(place.path), given, counted, books, faults)
    for line in made_statement.words():
        click.echo(f"inference-logging export: {safe(line)}", err=True)
    is_none_left = bool(counted.left_out) and not counted.exported
    if not counted.exported:
        why = _why_nothing(form, counted, filters, is_bounded=since is not None or until is not None)
        click.echo(f"inference-logging export: nothing exported: {why}", err=True)
    if statement is not None:
        with open(statement, "w", encoding="utf-8", opener=for_its_owner) as file:
            file.write(json.dumps(made_statement.as_json(), indent=2) + "\n")
    return FAILED if is_none_left or (require_complete and not made_statement.is_complete) else OK


def _why_nothing(form: str, counted: Requests, filters: Filters, *, is_bounded: bool) -> str:
    """Return why there is no request in the file, and what to do."""
    if counted.left_out:
        # A request that is not meant for the format, such as a GET, says less than one that lacks a field.
        reason = max(counted.left_out, key=lambda name: (name not in NOT_MEANT, counted.left_out[name]))
        return f"{form} cannot hold them ({reason}): {ADVICE[reason]}"
    if is_bounded and filters.keep is not None:
        return f"in that time {filters.why_nothing()}"
    if is_bounded:
        return "no request arrived in that time"
    return filters.why_nothing() if counted.filtered_out else "there are no request records"


class _Report:
    """Counts damaged lines, and names the first ones."""

    def __init__(self, counted: Requests) -> None:
        self._counted = counted

    def __call__(self, error: CorruptLineError) -> None:
        self._counted.damaged_lines += 1
        if self._counted.damaged_lines <= _MAX_REPORTED:
            click.echo(f"inference-logging: {safe(str(error))}", err=True)


def _checked(requests: Iterator[Request | Record], names: Names) -> Iterator[Request | Record]:
    """Pass requests on; raise ``UsageError`` at their end if none had a field that a condition names."""
    for request in requests:
        names.look(request.record if isinstance(request, Request) else request)
        yield request
    names.refuse_unknown()


def _wanted(
    keep: Callable[[Record], bool] | None, since: float | None, until: float | None
) -> Callable[[Request], bool]:
    first = round(since * 1e9) if since is not None else None
    end = round(until * 1e9) if until is not None else None

    def wanted(request: Request) -> bool:
        arrival = request.arrival_nano
        if (first is not None and arrival < first) or (end is not None and arrival >= end):
            return False
        return keep is None or keep(request.record)

    return wanted


def _verify_options(context: click.Context, place: Place, queues: Sequence[Path]) -> list[str]:
    """Return the command line of the `verify` that reads the same directory."""
    given: dict[str, Any] = context.params
    options = [f"--queue-directory={path}" for path in queues]
    options += [f"--prefix={name}" for name in place.prefixes or ()]
    if given.get("config_file") is not None:
        options.append(f"--config={given['config_file']}")
    directory = place.path if place.path.is_dir() else place.path.resolve().parent
    return [*options, "--", str(directory)]


def _key(path: Path) -> bytes:
    """Read a key as the servers do: 32 bytes, or 64 hexadecimal digits."""
    content = path.read_bytes()
    if len(content) == KEY_BYTES:
        return content
    try:
        key = bytes.fromhex(content.strip().decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise click.BadParameter(f"{path}: must hold 32 bytes, or 64 hexadecimal digits", param_hint="--hash-key-file")
    return key
