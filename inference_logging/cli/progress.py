"""A progress bar for a person at a terminal, where rich is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(total: int, text: str, **fields: Any) -> Iterator[Callable[..., object]]:
    """Return what moves the bar, with the arguments of rich's ``Progress.update``; it does nothing without a terminal.

    ``text`` may name ``task`` and its ``fields``, whose first values are given here.
    """
    if not sys.stderr.isatty():
        yield _stay
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TimeElapsedColumn
    except ImportError:
        yield _stay
        return
    columns = (BarColumn(), TimeElapsedColumn(), text)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, **fields)
        yield lambda **change: progress.update(task, **change)


def _stay(**_change: Any) -> None:
    pass
