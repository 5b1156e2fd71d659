"""What SIGUSR1 writes to the log: the full status, and the Python stack of every executor (CONTRACT "Signals").

An executor writes its stack itself, on its stderr, where ``output`` reads it. Only those are asked that catch the
signal: it would end one whose node code has taken the handler away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from plaita import jsontext
from plaita.policy.slot import Slot
from plaita.supervisor import logs
from plaita.supervisor.executor import Executor
from plaita.unix.processes import catches, pidfd_send_signal

STACK_BYTES = 16 * 1024  # of each executor, whatever its step has written before
_ROWS = {"executors": "status.executor", "stuck": "status.stuck", "deaths": "status.death"}


def log_status(status: dict[str, Any]) -> None:
    """A line each fact of ``status``; each executor, stuck step and death has its own."""
    for name, value in status.items():
        if name in _ROWS:
            for row in value:
                logs.info(_ROWS[name], **row)
        else:
            nested = isinstance(value, dict | list)
            logs.info("status", **{name: jsontext.dumps(value).decode() if nested else value})


def ask_for_stacks(executors: Iterable[Executor]) -> None:
    """Each that can writes its stack within moments; who cannot is named."""
    for executor in executors:
        if executor.pid is None or executor.pidfd is None or executor.state in (Slot.SPAWNING, Slot.GONE):
            continue
        if not catches(executor.pid, signal.SIGUSR1):
            logs.warning("status.no_stack", slot=executor.slot, pid=executor.pid, reason="SIGUSR1 is not caught there")
            continue
        for reader in executor.outputs:
            reader.allow(STACK_BYTES)
        pidfd_send_signal(executor.pidfd, signal.SIGUSR1)
