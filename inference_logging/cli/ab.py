"""`inference-logging ab`: what recording costs on servers that are serving, by switching it off and on in slices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from inference_logging.cli import native
from inference_logging.cli.options import CONFIG, QUEUE_DIRECTORY, SERVICE_NAME, configuration, duration_s, examples

if TYPE_CHECKING:
    from inference_logging._native import Comparison
    from inference_logging.prove.ab.comparison import Pair
    from inference_logging.record.config import Config

LEAST_PAIRS: Final = 6
SLICE_LIMITS_S: Final = (0.2, 300.0)
_MORE_S: Final = 2.0
"""Time that the comparison may take beyond its slices, after which the servers end it themselves."""


@click.command(
    "ab",
    epilog=examples(
        "inference-logging ab --for 60s",
        "inference-logging ab --config logging.yaml --for 5m --slice 2s --seed 7",
        "inference-logging ab --service-name chat --json",
    ),
)
@click.option(
    "--for",
    "for_",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long: 60s, 5m. At most control_limit_s.",
)
@click.option(
    "--slice",
    "slice_",
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Length of a slice, 0.2s to 300s: longer than requests take.",
)
@click.option("--seed", type=int, help="Repeat the order of an earlier run; random without it.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table: times in seconds, costs as shares.")
@CONFIG
@SERVICE_NAME
@QUEUE_DIRECTORY
def command(
    for_: str,
    slice_: str,
    seed: int | None,
    as_json: bool,
    config_file: Path | None,
    service_name: str | None,
    queue_directory: Path | None,
) -> int:
    """Measure what recording costs on servers that are serving, without a restart.

    Recording is switched off and on in slices, in all processes of the queue directory at once, in random order within
    each pair. The result compares requests/s, time to first chunk, time per chunk, CPU time per request and in all,
    without and with recording: the difference, its interval and a verdict. The intervals are wide enough that all five
    hold in 95 % of comparisons (Bonferroni: 99 % each), so you can believe each by itself.

    Clients that wait for each answer (a closed loop, like most load generators) send less when answers take longer. If
    that is seen, requests/s and CPU in all get no verdict, since they follow request times.

    Slices without recording are like `ctl disable`: about half of the requests have no record, nor do logs and
    connections in those slices. Their number is printed and recorded (control.changed). The audit lane goes on.
    Recording is on again when the command ends, or within a second if it is killed. Only ASGI requests are timed;
    requests of other servers are counted.

    Exit code: 1 if there was too little traffic or something else ended it; 2 if no server runs; 130 if a signal ended
    it, after printing what was found.
    """
    config = configuration(config_file=config_file, service_name=service_name, queue_directory=queue_directory)
    slice_s = _seconds("slice", slice_)
    low_s, high_s = SLICE_LIMITS_S
    if not low_s <= slice_s <= high_s:
        raise click.BadParameter(f"{slice_!r}: must be from {low_s:g}s to {high_s:g}s", param_hint="'--slice'")
    for_s = _seconds("for", for_)
    pairs = int(for_s / (2 * slice_s) + 1e-9)
    if pairs < LEAST_PAIRS or for_s > config.control_limit_s:
        least_s, most_s = 2 * LEAST_PAIRS * slice_s, config.control_limit_s
        sentence = f"{for_!r}: must be from {least_s:g}s, for {2 * LEAST_PAIRS} slices, to control_limit_s={most_s:g}"
        raise click.BadParameter(sentence, param_hint="'--for'")
    # The listener writes what came before within this time.
    guard_s = min(config.flush_interval_s, slice_s / 2)
    return _run(_directory(config, by_name=service_name is not None), pairs, slice_s, guard_s, seed, as_json)


def _seconds(option: str, text: str) -> float:
    try:
        return duration_s(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'--{option}'") from None


def _directory(config: Config, *, by_name: bool) -> Path:
    """Return the queue directory of the application that a configuration means, as `ctl` finds it."""
    from inference_logging._native import Settings, queue_directory  # only for a right command line

    try:
        return queue_directory(Settings(native.as_json(config)), by_name)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _run(directory: Path, pairs: int, slice_s: float, guard_s: float, seed: int | None, as_json: bool) -> int:
    from inference_logging._native import Comparison
    from inference_logging.cli.main import FAILED, INTERRUPTED, OK
    from inference_logging.cli.signals import Signals
    from inference_logging.prove.ab.comparison import compare
    from inference_logging.prove.ab.findings import Findings
    from inference_logging.prove.ab.slices import Interrupted, Processes, Slices

    processes = Processes(directory)
    if not processes.servers and not processes.unseen:
        raise click.UsageError(f"queue_directory={directory}: no server uses it")
    done: list[Pair] = []
    ended, code = None, OK
    with Signals() as signals:
        comparison = Comparison(directory, 2 * pairs * slice_s + _MORE_S)
        slices = Slices(comparison, processes, signals.wait, slice_s=slice_s, guard_s=guard_s, seed=seed)
        try:
            _announce(pairs, slice_s, as_json)
            for pair in slices.pairs(pairs):
                done.append(pair)  # noqa: PERF402 - what is done counts, whatever ends the rest
        except Interrupted:
            ended, code = "a signal has ended it early", INTERRUPTED
        except OSError as error:
            ended, code = str(error), FAILED
        finally:
            _end(comparison)
    findings = Findings(
        queue_directory=str(directory),
        compared=compare(done),
        requests=tuple(arm["requests"] for arm in comparison.counts()),
        slice_s=slice_s,
        pairs=len(done),
        late_pairs=slices.late,
        servers=len(processes.servers),
        listeners=len(processes.listeners),
        unseen=len(processes.unseen),
        ended=ended,
    )
    click.echo(json.dumps(findings.as_json(), indent=2) if as_json else findings.as_text())
    return code or (OK if findings.is_enough else FAILED)


def _end(comparison: Comparison) -> None:
    """Switch recording on; a refused record of that is no reason to lose the findings."""
    try:
        comparison.end()
    except OSError as error:
        click.echo(f"inference-logging: recording is on again, but this could not be recorded: {error}", err=True)


def _announce(pairs: int, slice_s: float, as_json: bool) -> None:
    if not as_json and sys.stderr.isatty():
        sentence = f"recording is switched off in {pairs} of {2 * pairs} slices of {slice_s:g} s; Ctrl-C ends it"
        click.echo(sentence, err=True)
