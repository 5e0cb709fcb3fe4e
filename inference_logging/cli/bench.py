"""`inference-logging bench`: what each way of logging costs on this machine, ours and others, beside each other."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from inference_logging.cli import bench_against
from inference_logging.cli.options import examples
from inference_logging.cli.progress import bar
from inference_logging.prove.bench.peers import NAMES
from inference_logging.prove.bench.record import LARGEST_BYTES, MOST_THREADS, SMALLEST_BYTES
from inference_logging.prove.bench.result import LOOPS

if TYPE_CHECKING:
    from inference_logging.prove.bench.result import Result
    from inference_logging.prove.bench.run import Plan

_FULL: Final[dict[str, Any]] = {
    "threads": (1, 16, 64),
    "loops": LOOPS,
    "sizes": (256, 4096),
    "rounds": 3,
    "seconds": 0.3,
}
_QUICK: Final[dict[str, Any]] = {
    "threads": (1, 16),
    "loops": ("closed",),
    "sizes": (256,),
    "rounds": 1,
    "seconds": 0.05,
}


Values = tuple[Any, ...]
Callback = Callable[[click.Context, click.Parameter, str | None], Values | None]


def _each(read: Callable[[str], Any], allowed: str) -> Callback:
    """Return what reads values separated by commas, each once; an error names the one that is wrong."""

    def one(word: str) -> Any:
        try:
            return read(word)
        except ValueError:
            raise click.BadParameter(f"{word!r} is not {allowed}") from None

    return lambda _context, _parameter, text: (
        None if text is None else tuple(dict.fromkeys(one(word.strip()) for word in text.split(",")))
    )


def _numbers(least: int, most: int) -> Callback:
    def read(word: str) -> int:
        number = int(word)
        if not least <= number <= most:
            raise ValueError(word)
        return number

    return _each(read, f"a whole number from {least:,} to {most:,}")


def _names(names: tuple[str, ...]) -> Callback:
    def read(word: str) -> str:
        if word not in names:
            raise ValueError(word)
        return word

    return _each(read, f"one of {', '.join(names)}")


@click.command(
    "bench",
    epilog=examples(
        "inference-logging bench --quick --peers empty,ours-event --threads 1",
        "inference-logging bench --json > result.json",
        bench_against.EXAMPLE,
        "inference-logging bench --peers stdlib-queue,ours-event,ours-handler --loops open --sizes 256 --json",
    ),
)
@click.option("--peers", callback=_names(NAMES), metavar="NAME,…", help="Ways of logging to measure (all).")
@click.option("--threads", callback=_numbers(1, MOST_THREADS), metavar="N,…", help="Numbers of threads (1,16,64).")
@click.option("--loops", callback=_names(LOOPS), metavar="NAME,…", help="Kinds of load (closed,open).")
@click.option(
    "--sizes", callback=_numbers(SMALLEST_BYTES, LARGEST_BYTES), metavar="BYTES,…", help="Sizes of records (256,4096)."
)
@click.option("--rounds", type=click.IntRange(1, 100), help="Rounds over all cells; the figures are medians (3).")
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 600),
    help="How long to measure a cell (0.3), or with --against in all (30).",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables, with intervals and settings.")
@click.option("--quick", is_flag=True, help="One short round with 1 and 16 threads, to see that it works.")
@bench_against.CONFIG
@bench_against.AGAINST
@click.pass_context
def command(
    context: click.Context,
    /,
    peers: tuple[str, ...] | None,
    *,
    as_json: bool,
    quick: bool,
    config_file: Path | None,
    against: Path | None,
    **given: Any,
) -> None:
    """Measure what each way of logging costs here: the standard library, other libraries, and ours.

    Each cell (a peer, a thread count, a kind of load, a record size) runs in its own process, in rounds of shuffled
    order. All log the same record; each peer is set up as its documentation recommends for production, which the
    result shows. Every call is timed, and the records in the files are counted. Peers whose library is missing (extra
    `bench`) are named. A full run takes about 20 minutes.

    With --config and --against: what a configuration change costs, as Markdown for its review.
    """
    if against is not None or config_file is not None:
        _refuse(context, OPTIONS - _WITH_AGAINST, "not with --against")
        bench_against.run(config_file, against, given["seconds"], given["rounds"], as_json=as_json)
    else:
        chosen = (_QUICK if quick else _FULL) | {name: value for name, value in given.items() if value is not None}
        _bench({"peers": peers if peers is not None else NAMES, "quick": quick, **chosen}, as_json)


_WITH_AGAINST: Final = frozenset({"seconds", "rounds", "as_json", "config_file", "against"})
OPTIONS: Final = frozenset(parameter.name for parameter in command.params if parameter.name)


def _refuse(context: click.Context, names: Iterable[str], why: str) -> None:
    for parameter in context.command.params:
        name = parameter.name
        if name in names and context.get_parameter_source(str(name)) is not ParameterSource.DEFAULT:
            raise click.BadParameter(why, context, parameter)


def _bench(chosen: dict[str, Any], as_json: bool) -> None:
    from inference_logging.prove.bench.run import Plan
    from inference_logging.prove.bench.text import lines

    result = _measured(Plan(**chosen))
    for line in [json.dumps(result, indent=1, ensure_ascii=False)] if as_json else lines(result):
        click.echo(line)


def _measured(plan: Plan) -> Result:
    from inference_logging.prove.bench.run import run

    with bar(plan.steps(), "{task.completed} of about {task.total}: {task.fields[step]}", step="") as moves:
        command = shlex.join(["inference-logging", *sys.argv[1:]])
        return run(plan, command, lambda step: moves(advance=1, step=step))
