"""A descriptor kept back: who has none left can still look at /proc, and so end what must be ended (trouble 56).

The supervisor keeps one from its start. It is given up for the moment of one look, and taken back right after. A
process that has never called ``keep`` reads as ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_kept: list[int] = []


def keep() -> None:
    """Keep one from now on. Raises OSError where there is none even now."""
    if not _kept:
        _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def read_bytes(path: str, most: int = -1) -> bytes:
    """What a file of /proc says now. Raises OSError."""

    def read() -> bytes:
        with open(path, "rb") as file:
            return file.read(most)

    return _with_one(read)


def names_in(path: str) -> list[str]:
    """The names in a folder. Raises OSError."""
    return _with_one(lambda: os.listdir(path))


def _with_one(look: Callable[[], T]) -> T:
    try:
        return look()
    except OSError as error:
        if error.errno not in _NONE_LEFT or not _kept:
            raise
    with _lent():
        return look()


@contextlib.contextmanager
def _lent() -> Iterator[None]:
    os.close(_kept.pop())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # another thread was faster; the next ``keep`` gets it back
            keep()
