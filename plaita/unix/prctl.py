"""prctl(2) and timerfd(2) by ctypes: what a process says about itself to the kernel, and a clock that never sleeps.

Owns the calls Python 3.11 does not have. Each raises OSError with the kernel's errno.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_CLONE_THREAD = 0x10000
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int


def _check(result: int, what: str) -> int:
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def _call(option: int, value: int, what: str) -> int:
    return _check(int(_prctl(option, value, 0, 0, 0)), what)


def set_child_subreaper(on: bool = True) -> None:
    """Orphans below this process become its children instead of init's."""
    _call(_PR_SET_CHILD_SUBREAPER, int(on), "prctl(PR_SET_CHILD_SUBREAPER)")


def get_child_subreaper() -> bool:
    """Whether this process is a child subreaper."""
    value = ctypes.c_int(0)
    address = ctypes.cast(ctypes.pointer(value), ctypes.c_void_p).value or 0
    _call(_PR_GET_CHILD_SUBREAPER, address, "prctl(PR_GET_CHILD_SUBREAPER)")
    return bool(value.value)


def set_pdeathsig(signal_number: int) -> None:
    """The signal this process gets when the thread that is its parent ends; 0 for none.

    It follows the parent of *this moment*: set it only once the final parent is known, then check the parent again.
    A change of user or group ids clears it.
    """
    _call(_PR_SET_PDEATHSIG, int(signal_number), "prctl(PR_SET_PDEATHSIG)")


def get_pdeathsig() -> int:
    """The parent-death signal of this process; 0 for none."""
    value = ctypes.c_int(0)
    address = ctypes.cast(ctypes.pointer(value), ctypes.c_void_p).value or 0
    _call(_PR_GET_PDEATHSIG, address, "prctl(PR_GET_PDEATHSIG)")
    return value.value


def set_dumpable(on: bool) -> None:
    """Off: no core file, and processes of the same user read neither its memory nor environment (DECISIONS 34)."""
    _call(_PR_SET_DUMPABLE, int(on), "prctl(PR_SET_DUMPABLE)")


def get_dumpable() -> int:
    """0 closed, 1 open, 2 readable by root only."""
    return _call(_PR_GET_DUMPABLE, 0, "prctl(PR_GET_DUMPABLE)")


def set_name(name: str) -> None:
    """The short name (``comm``, at most 15 bytes are kept) that ``top`` and kernel messages show."""
    buffer = ctypes.create_string_buffer(name.encode("utf-8", "replace")[:15])
    _call(_PR_SET_NAME, ctypes.addressof(buffer), "prctl(PR_SET_NAME)")


def is_single_threaded() -> bool:
    """Whether this process surely has one thread only; False also where the kernel does not let us ask.

    unshare(CLONE_THREAD) changes nothing, and is refused to a process with threads: a tenth of what /proc costs.
    """
    return bool(_libc.unshare(_CLONE_THREAD) == 0)


class BootTimer:
    """A descriptor that turns readable at a moment of CLOCK_BOOTTIME, also when the machine slept over it.

    ``poll(timeout)`` counts CLOCK_MONOTONIC, which stands still in a suspended machine: a deadline given as a poll
    timeout would be late by the sleep. Raises OSError where the kernel has no timerfd.
    """

    def __init__(self) -> None:
        flags = _TFD_NONBLOCK | _TFD_CLOEXEC
        self._fd = _check(int(_libc.timerfd_create(time.CLOCK_BOOTTIME, flags)), "timerfd_create")

    def fileno(self) -> int:
        """The descriptor, for poll."""
        return self._fd

    def arm(self, boot_ms: int | None) -> None:
        """Readable from ``boot_ms`` (milliseconds since boot) on; None: never."""
        if boot_ms is None:
            seconds, nanoseconds = 0, 0
        else:
            seconds, rest = divmod(max(boot_ms, 1), 1000)
            nanoseconds = rest * 1_000_000
        value = struct.pack("@qqqq", 0, 0, seconds, nanoseconds)
        _check(int(_libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, value, None)), "timerfd_settime")

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
