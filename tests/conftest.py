"""For every test process: the signal dispositions of an ordinary one, however the run was started.

A shell starts background jobs with SIGINT and SIGQUIT ignored; ignored signals stay ignored over exec, and programs
under test would then not see what a test sends them.
"""

from __future__ import annotations

import signal
import zlib

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the modules, the same way each time: those that wait, for a lease or a delay, stand beside those that
    compute, or the run would end with workers that all wait. The order within a module stays, and so do its fixtures.
    """
    items.sort(key=lambda item: zlib.crc32(item.path.name.encode()))
