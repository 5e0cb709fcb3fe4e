"""Waits that signals end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

import pytest

from inference_logging.cli.ship import Stop
from inference_logging.cli.signals import Signals

SHORT_PAUSES = """
from inference_logging.cli.ship import Stop

with Stop() as stop:
    for number in range(20_000):
        assert not stop.wait(1e-7 if number % 2 else 1e-6)
"""
ASKED_TO_END_AT_ANY_INSTANT = """
import random, signal
from inference_logging.cli.signals import Signals

with Signals([signal.SIGALRM]) as signals:
    for _ in range(3000):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        while signals.wait(1e-5) is None:
            pass
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        assert signals.wait(3600) == signal.SIGALRM
"""


@pytest.mark.servers
def test_a_pause_ends_however_short_it_is() -> None:
    subprocess.run([sys.executable, "-c", SHORT_PAUSES], check=True, timeout=120)


def test_a_signal_at_any_instant_of_a_wait_ends_it() -> None:
    subprocess.run([sys.executable, "-c", ASKED_TO_END_AT_ANY_INSTANT], check=True, timeout=120)


def test_a_signal_that_came_before_the_wait_ends_it() -> None:
    with Signals([signal.SIGUSR1, signal.SIGUSR2]) as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert [signals.wait(3600), signals.wait(3600), signals.wait(0)] == [signal.SIGUSR1, signal.SIGUSR2, None]


def test_other_signals_end_no_wait() -> None:
    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    try:
        with Signals([signal.SIGUSR1]) as signals:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert signals.wait(0.01) is None
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_an_error_of_the_handler_ends_the_wait() -> None:
    def refuse(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def asked(signals: Signals) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        signals.wait(3600)

    with Signals([signal.SIGUSR1], refuse) as signals, pytest.raises(KeyboardInterrupt):
        asked(signals)


def test_afterwards_handlers_and_descriptor_are_as_before() -> None:
    read, write = os.pipe2(os.O_NONBLOCK)
    other = signal.set_wakeup_fd(write)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGTERM) is not handler
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.set_wakeup_fd(other) == write
    finally:
        os.close(read)
        os.close(write)


def test_a_stop_stays_asked_for() -> None:
    with Stop() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert [stop.wait(3600), stop.is_set(), stop.wait(3600)] == [True, True, True]
