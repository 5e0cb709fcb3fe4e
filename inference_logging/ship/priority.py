"""The lowest priority of processor and disk for this process, so that a server beside it goes first."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Final

LOWEST_NICE: Final = 19
_CALLS: Final = {"x86_64": (252, 251), "aarch64": (31, 30)}
"""The numbers of ioprio_get and ioprio_set, for which Python and libc have no function."""
_OF_A_THREAD: Final = 1
_CLASS_SHIFT: Final = 13
_BEST_EFFORT: Final = 2
_IDLE: Final = 3
_LOWEST_LEVEL: Final = 7


def lower_priority() -> None:
    """Lower both; threads that are started later inherit them. A disk's class idle, which is lower still, stays.

    Not idle itself: on a disk that is always busy nothing would ever be read.
    """
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_NICE)
    if platform.system() != "Linux" or platform.machine() not in _CALLS:
        return
    get, set_ = _CALLS[platform.machine()]
    call = ctypes.CDLL(None, use_errno=True).syscall
    # A sandbox may forbid it; what follows from nice is then all there is.
    with contextlib.suppress(OSError):
        if _checked(call(get, _OF_A_THREAD, 0)) >> _CLASS_SHIFT != _IDLE:
            _checked(call(set_, _OF_A_THREAD, 0, _BEST_EFFORT << _CLASS_SHIFT | _LOWEST_LEVEL))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
