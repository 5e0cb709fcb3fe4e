"""What a producer does until it is killed: its threads emit numbered records as fast as they can, and journal each."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from inference_logging import Config, Logger, get_logger
from tests.crash.journal import ACCEPTED, BORN, REFUSED, Pen
from tests.kit.c_programs import configuration_file

FIELDS: Final = ("life", "thread", "n", "text")
FIRST_CHILD: Final = 1 << 16
"""A child's life is its parent's, times this, plus its number: no life that the stage gives out is so high."""

_CHILDREN: Final = 8

_ALPHABET = "".join(f'{number:03}é€\U0001f600"\\\n\t\x00{"token " * (number % 5)}' for number in range(2000))
_PAUSE_AT_REFUSAL_S = 0.0005


def text(life: int, thread: int, number: int) -> str:
    """Return the text that this record must have; one in 61 is long, so that some producers die while they copy it."""
    at = (life * 7919 + thread * 31 + number) % 997
    length = 4000 + at * 10 if number % 61 == 60 else at % 200
    return f"{life}.{thread}.{number}:{_ALPHABET[at : at + length]}"


def emitters(logger: Logger) -> list[Callable[[int, int, int], bool]]:
    """Return the ways by which a record can come: a registered event, INFO, and an application record, WARN."""
    event, log = logger.event("crash", FIELDS), get_logger("crash")

    def by_event(life: int, thread: int, number: int) -> bool:
        return event(life, thread, number, text(life, thread, number))

    def by_log(life: int, thread: int, number: int) -> bool:
        return log.warning("crash", life=life, thread=thread, n=number, text=text(life, thread, number))

    return [by_event, by_event, by_event, by_log]


def emit_for_ever(ways: list[Callable[[int, int, int], bool]], journal: int, life: int, thread: int) -> NoReturn:
    """Emit 0, 1, 2, …; a number that was refused is tried again. Of refusals, those of the first way are journalled."""
    pen, pause, number = Pen(journal, life, thread), threading.Event(), 0
    while True:
        if ways[number % len(ways)](life, thread, number):
            pen.write(ACCEPTED, number)
            number += 1
        else:
            if ways[number % len(ways)] is ways[0]:
                pen.write(REFUSED, number)
            pause.wait(_PAUSE_AT_REFUSAL_S)


def begin(ways: list[Callable[[int, int, int], bool]], journal: int, life: int, threads: int) -> None:
    """Start the threads of one process."""
    for thread in range(threads):
        threading.Thread(target=emit_for_ever, args=(ways, journal, life, thread), daemon=True).start()


def produce(config: Config, journal: int, life: int, threads: int = 2) -> NoReturn:
    """Open a logger and emit until killed."""
    ways = emitters(Logger(config))
    begin(ways, journal, life, threads)
    _wait_for_the_end()


def produce_in_c(program: Path, config: Config, journal: int, life: int, threads: int = 2) -> NoReturn:
    """As ``produce``, by the program of ``tests/c/crash.c``."""
    place = config.directory.parent
    alphabet = place / f"alphabet-{life}"
    alphabet.write_bytes(_ALPHABET.encode(f"utf-32-{sys.byteorder[0]}e"))
    configuration = configuration_file(config, place / f"configuration-{life}.json")
    os.set_inheritable(journal, True)
    os.execv(program, [str(one) for one in (program, configuration, journal, life, threads, alphabet)])


def produce_and_read(config: Config, journal: int, life: int, threads: int = 2) -> NoReturn:
    """As ``produce``; on SIGUSR1 the process opens, reads and closes all queue files, as a backup of its own would."""

    def read(*_: object) -> None:
        for path in config.resolved_queue_directory.glob("*.queue"):
            with contextlib.suppress(FileNotFoundError):
                path.read_bytes()

    signal.signal(signal.SIGUSR1, read)
    produce(config, journal, life, threads)


def produce_and_fork(config: Config, journal: int, life: int, threads: int = 2) -> NoReturn:
    """As ``produce``; besides, fork children now and then, which emit as well: while all threads do so."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes them away once they are killed
    ways = emitters(Logger(config))
    begin(ways, journal, life, threads)
    pause, random = threading.Event(), Random(life)
    for child in range(_CHILDREN):
        pause.wait(random.uniform(0.01, 0.1))
        with in_a_child() as is_child:
            if is_child:
                begin_life(ways, journal, life * FIRST_CHILD + child, threads)
    _wait_for_the_end()


def begin_life(ways: list[Callable[[int, int, int], bool]], journal: int, life: int, threads: int) -> NoReturn:
    """Emit in a forked child, with what it has inherited."""
    Pen(journal, life).write(BORN, os.getpid())
    begin(ways, journal, life, threads)
    _wait_for_the_end()


@contextlib.contextmanager
def in_a_child() -> Iterator[bool]:
    """Fork; True in the child, which never comes out of the block."""
    pid = os.fork()
    try:
        yield pid == 0
    finally:
        if pid == 0:
            os._exit(1)


def _wait_for_the_end() -> NoReturn:
    while True:
        signal.pause()
